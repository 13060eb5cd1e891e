"""Requests, parsed from their bytes."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from v2_requests import binary_tensor, body, tensor

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.serving.refusals import RequestError
from neocpu.serving.request import RequestedOutput, parse_request, values_at_most

A = np.arange(6, dtype="float32").reshape(2, 3)
B = np.array([1, 0, 255], "uint8")
INPUTS = (TensorSpec("a", "float32", (2, 3)), TensorSpec("b", "uint8", (3,)))
OUTPUTS = (TensorSpec("y", "float32", (4,)), TensorSpec("z", "int64", (1,)))


def expected_outputs(*wanted):
    kinds = {spec.name: spec.dtype for spec in OUTPUTS}
    return tuple(RequestedOutput(name, binary, kinds[name]) for name, binary in wanted)


def parse(content, json_bytes=None, inputs=INPUTS):
    signatures = [Signature(inputs, OUTPUTS)]
    return parse_request(memoryview(content), json_bytes, signatures, values_at_most(signatures))


def test_json():
    found = parse(body(tensor("b", B), tensor("a", A), id="7"))
    assert found.id == "7"
    np.testing.assert_array_equal(found.inputs["a"], A)
    np.testing.assert_array_equal(found.inputs["b"], B)
    assert found.outputs == expected_outputs(("y", False), ("z", False))


def test_binary_data_follow_in_the_order_of_their_inputs():
    text = body(binary_tensor("b", B), binary_tensor("a", A))
    found = parse(text + B.tobytes() + A.tobytes(), len(text))
    np.testing.assert_array_equal(found.inputs["a"], A)
    np.testing.assert_array_equal(found.inputs["b"], B)


def test_json_and_binary_may_be_mixed():
    text = body(tensor("a", A), binary_tensor("b", B))
    found = parse(text + B.tobytes(), len(text))
    np.testing.assert_array_equal(found.inputs["a"], A)
    np.testing.assert_array_equal(found.inputs["b"], B)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"parameters": {"binary_data_output": True}}, [("y", True), ("z", True)]),
        ({"outputs": [{"name": "z"}]}, [("z", False)]),
        ({"outputs": []}, [("y", False), ("z", False)]),
        (
            {"outputs": [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]},
            [("z", True), ("y", False)],
        ),
        (
            {
                "parameters": {"binary_data_output": True, "priority": 3},
                "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
            },
            [("y", False)],
        ),
    ],
)
def test_outputs(fields, expected):
    found = parse(body(tensor("a", A), tensor("b", B), **fields))
    assert found.outputs == expected_outputs(*expected)


GOOD = [tensor("a", A), tensor("b", B)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"a":' * 60_000, "not JSON"),
        (b"[]", "JSON object"),
        (b"7", "JSON object"),
        (b"{}", "list of 'inputs'"),
        (b'{"inputs": {}}', "list of 'inputs'"),
        (b'{"inputs": [3]}', "object with a name"),
        (b'{"inputs": [{"name": 3}]}', "object with a name"),
        (body(tensor("a", A, data=[float("nan")] * 6), tensor("b", B)), "not JSON"),
        (body(tensor("a", A, data=[float("inf")] * 6), tensor("b", B)), "not JSON"),
        (body(tensor("a", A)), "missing input b"),
        (body(), "missing input a, b"),
        (body(*GOOD, tensor("a", A)), "input 'a' is given twice"),
        (body(*GOOD, tensor("c", A)), "no input 'c', only a, b"),
        (body(*GOOD, tensor("A", A)), "no input 'A'.*"),
        (body(tensor("a", A, data=None), tensor("b", B)), "data must be a list, got None"),
        (body(*GOOD, id=3), "id must be a string"),
        (body(*GOOD, parameters=[]), "parameters must be an object"),
        (body(*GOOD, parameters={"binary_data_output": 1}), "true or false"),
        (body(*GOOD, outputs="y"), "outputs must be a list"),
        (body(*GOOD, outputs=[{"name": "x"}]), "no output 'x'"),
        (body(*GOOD, outputs=[{"name": "y"}, {"name": "y"}]), "output 'y' is given twice"),
        (body(*GOOD, outputs=[{}]), "every output must be an object with a name"),
        (
            body(*GOOD, outputs=[{"name": "y", "parameters": {"classification": 5}}]),
            "classification extension is not supported",
        ),
        (
            body(tensor("a", A, parameters={"shared_memory_region": "r"}), tensor("b", B)),
            "shared memory extension is not supported",
        ),
        (body(binary_tensor("a", A), tensor("b", B)), "only 0 bytes are left"),
        (body(tensor("a", A, parameters={"binary_data_size": -1}), tensor("b", B)), "a number"),
        (body(tensor("a", A, parameters={"binary_data_size": "4"}), tensor("b", B)), "a number"),
        (body(tensor("a", A, parameters={"binary_data_size": 24}), tensor("b", B)), "both data"),
    ],
)
def test_malformed(content, words):
    with pytest.raises(RequestError, match=words) as caught:
        parse(content)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("size", "tail", "json_bytes", "words"),
    [
        (24, 20, 0, "only 20 bytes are left"),
        (24, 28, 0, "4 bytes of the body belong to no input"),
        (20, 20, 0, "has 24 bytes, got 20"),
        (10**30, 24, 0, "must be a number|bytes are left"),
        (24, 24, 10_000, "Inference-Header-Content-Length must be"),
        (24, 24, -3, "not JSON"),
    ],
)
def test_binary_sizes_that_lie(size, tail, json_bytes, words):
    text = body(binary_tensor("a", A, parameters={"binary_data_size": size}), tensor("b", B))
    with pytest.raises(RequestError, match=words):
        parse(text + bytes(tail), len(text) + json_bytes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["name", "shape", "datatype", "data", "parameters", "inputs", "outputs"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
ENTRY = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"])},
    optional={
        "datatype": st.sampled_from(["FP32", "UINT8", "BYTES"]) | JSON,
        "shape": st.sampled_from([[2, 3], [3]]) | JSON,
        "data": st.lists(st.integers(0, 3), max_size=6) | JSON,
        "parameters": st.fixed_dictionaries(
            {}, optional={"binary_data_size": st.integers(0, 30) | JSON}
        )
        | JSON,
    },
)
REQUEST = st.fixed_dictionaries(
    {"inputs": st.lists(ENTRY, max_size=3) | JSON},
    optional={"outputs": st.lists(ENTRY, max_size=2) | JSON, "id": JSON, "parameters": JSON},
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUEST | JSON, st.binary(max_size=40), st.none() | st.integers(-2, 4))
def test_any_request_is_parsed_or_refused(document, tail, shift):
    text = json.dumps(document).encode()
    _parse_or_refuse(text + tail, None if shift is None else len(text) + shift)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_change_of_a_good_request_is_parsed_or_refused(data):
    text = body(binary_tensor("a", A), tensor("b", B))
    content = bytearray(text + A.tobytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    _parse_or_refuse(bytes(content[:end]), len(text))


def _parse_or_refuse(content, json_bytes):
    try:
        found = parse(content, json_bytes)
    except RequestError as error:
        refusal = error
    else:
        assert [found.inputs[s.name].shape for s in INPUTS] == [s.shape for s in INPUTS]
        assert [found.inputs[s.name].dtype for s in INPUTS] == [s.dtype for s in INPUTS]
        return
    assert refusal.status == 400
    assert str(refusal).isprintable()


FILLERS = ("[]", "{}", "0", "0.5", "null", '""', "[[[[[[[[]]]]]]]]", "[0]", '{"a":0}', '{"a":[{}]}')


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FILLERS), min_size=1, max_size=3),
    st.sampled_from(['{"inputs": [%s]}', "[%s]", '{"inputs": [{"name": "a", "data": [%s]}]}']),
)
def test_json_takes_no_memory_that_the_inputs_do_not_explain(fillers, around):
    """Small values take up to a hundred times their bytes once they are parsed."""
    unit = ",".join(fillers) + ","
    text = (around % (unit * (2_000_000 // len(unit)) + "0")).encode()
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="more than 65549 values"):
            parse(text)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(text)
    finally:
        tracemalloc.stop()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3) | st.sampled_from([1, 1, 300, 50_000]), max_size=6).filter(
        lambda shape: math.prod(filter(None, shape)) <= 150_000
    ),
    st.booleans(),
)
def test_every_shape_may_be_sent_in_json(shape, nested):
    x = np.ones(shape, "float32")
    spec = TensorSpec("x", "float32", tuple(shape))
    content = body(tensor("x", x, data=(x if nested and x.size and shape else x.ravel()).tolist()))
    found = parse(content, inputs=(spec,))
    np.testing.assert_array_equal(found.inputs["x"], x)
