"""Results in the caller's arrays."""

from __future__ import annotations

import numpy as np
import pytest
from float_models import float_model
from onnx import helper
from onnx.reference import ReferenceEvaluator

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.runtime.module import load

SHAPE = (2, 3, 8, 6)


def fresh(dtype="f4"):
    return np.full(SHAPE, np.nan, dtype)


@pytest.mark.parametrize(
    "make",
    [
        fresh,
        lambda: fresh(">f4"),
        lambda: np.asfortranarray(fresh()),
        lambda: np.full((2, 3, 8, 12), np.nan, "f4")[..., ::2],
        lambda: fresh()[..., ::-1],
        lambda: np.zeros(4 * 288 + 1, "u1")[1:].view("f4").reshape(SHAPE),
    ],
    ids=["plain", "big-endian", "fortran", "strided", "reversed", "misaligned"],
)
def test_results_are_written_to_the_arrays_and_those_returned(two_way, two_way_module, make):
    inputs = two_way.inputs()
    expected = two_way_module(inputs)
    out = [make(), make()]
    results = two_way_module(inputs, out=out)
    assert results[0] is out[0]
    assert results[1] is out[1]
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_one_output_takes_one_array(linear):
    out = np.empty((4, 33), "f4")
    with load(linear.path) as module:
        assert module(linear.inputs(), out=out) is out
        np.testing.assert_array_equal(module(linear.inputs()), out)
        assert module(linear.inputs(), out=[out]) is out


def test_by_name_in_any_order(two_way, two_way_module):
    image, mask = two_way.inputs()
    expected = two_way_module([image, mask])
    out = {"same": fresh(), "sum": fresh()}
    results = two_way_module.run({"image": image, "mask": mask}, out=out)
    assert list(results) == ["sum", "same"]
    assert all(results[name] is out[name] for name in out)
    for name, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(out[name], value)


@pytest.mark.parametrize("which", [0, 1])
def test_an_input_may_take_a_result(two_way, two_way_module, which):
    """The second output is the first input unchanged; the first output must not overwrite it."""
    inputs = two_way.inputs()
    expected = two_way_module(inputs)
    out = [inputs[which], fresh()]
    results = two_way_module(inputs, out=out)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_later_calls_leave_earlier_results_alone(two_way, two_way_module):
    first, second = two_way.inputs(1), two_way.inputs(2)
    out = [fresh(), fresh()]
    kept = two_way_module(first, out=out)
    copies = [one.copy() for one in kept]
    two_way_module(second)
    two_way_module(second, out=[fresh(), fresh()])
    for one, other in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(one, other)


def frozen():
    array = fresh()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (fresh(), r"2 outputs \(sum, same\), out= has 1 array: pass one for"),
        ([fresh()] * 3, "out= has 3 arrays"),
        ([fresh("f8"), fresh()], r"'sum': expected float32\[2,3,8,6\], got float64\[2,3,8,6\]"),
        ([fresh(), fresh()[0]], r"'same': expected float32\[2,3,8,6\], got float32\[3,8,6\]"),
        ([fresh(), frozen()], "out= for 'same' is read-only"),
        ([fresh(), fresh().tolist()], "'same' must be a numpy array, got list"),
    ],
)
def test_arrays_that_do_not_fit(two_way, two_way_module, out, message):
    with pytest.raises(UsageError, match=message):
        two_way_module(two_way.inputs(), out=out)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"sum": fresh()}, "missing output same"),
        ({"sum": fresh(), "some": fresh()}, "no output 'some', only sum, same; did you mean"),
        ([fresh(), fresh()], "must be a mapping"),
    ],
)
def test_names_that_do_not_fit(two_way, two_way_module, out, message):
    image, mask = two_way.inputs()
    with pytest.raises(UsageError, match=message):
        two_way_module.run({"image": image, "mask": mask}, out=out)


def test_an_output_where_parts_were_joined_before():
    """It has the place of a concatenation that kernels wrote in parts, but its own number."""
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "low"], ["a"], **same),
        helper.make_node("Conv", ["x", "high"], ["b"], **same),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Conv", ["c", "w"], ["d"], **same),
        helper.make_node("Conv", ["d", "w"], ["e"], **same),
    ]
    shape = [1, 16, 9, 8]
    parts = {"w": weights, "low": weights[:8], "high": weights[8:]}
    model = float_model("joined", nodes, {"x": shape}, {"e": shape}, parts)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with neocpu.compile(model, opt="nchw", verify=False) as compiled:
        calls, returns = compiled.header.calls, compiled.header.returns
        assert sum(returns[0] in tensors for _, tensors in calls) == 1
        got = compiled.module()(x)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
