"""Tensor data of requests as arrays."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.serving.datatypes import DATATYPES
from neocpu.serving.refusals import RequestError
from neocpu.serving.tensors import brief, check_declaration, from_binary, from_json


def spec_of(array: np.ndarray) -> TensorSpec:
    return TensorSpec("x", array.dtype.name, array.shape)


ARRAYS = st.sampled_from(sorted(set(DATATYPES) - {"bfloat16"})).flatmap(
    lambda dtype: arrays.arrays(
        dtype,
        arrays.array_shapes(max_dims=4, max_side=4),
        elements=(
            {"allow_nan": False, "allow_infinity": False} if dtype.startswith("float") else None
        ),
    )
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ARRAYS, st.booleans())
@example(np.array([[0], [2**63]], "uint64"), True)
def test_json_gives_the_very_numbers(array, nested):
    data = array.tolist() if nested else array.reshape(-1).tolist()
    found = from_json(spec_of(array), data)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ARRAYS, st.integers(0, 7))
def test_binary_gives_the_very_bytes_wherever_they_lie(array, offset):
    data = memoryview(bytes(offset) + array.tobytes())[offset:]
    found = from_binary(spec_of(array), data)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_bfloat16_is_rounded_in_json_and_bits_in_binary():
    spec = TensorSpec("x", "bfloat16", (4,))
    found = from_json(spec, [1.0, -2.5, 1.005859375, 1e-3])
    np.testing.assert_array_equal(found, [0x3F80, 0xC020, 0x3F81, 0x3A83])
    np.testing.assert_array_equal(from_binary(spec, memoryview(found.tobytes())), found)
    with pytest.raises(RequestError, match="out of the range of BF16"):
        from_json(spec, [0, 0, 0, 3.4e38])


def test_binary_is_not_copied():
    data = bytearray(np.arange(6, dtype="float32").tobytes())
    found = from_binary(TensorSpec("x", "float32", (2, 3)), memoryview(data))
    data[:4] = np.float32(9).tobytes()
    assert found[0, 0] == 9


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("float32", "abc"),
        ("float32", {"0": 1}),
        ("float32", [1, 2]),
        ("float32", [1, 2, 3, 4]),
        ("float32", [[1, 2, 3]]),
        ("float32", [[1], [2, 3]]),
        ("float32", [1, None, 3]),
        ("float32", [1, "2", 3]),
        ("float32", [True, False, True]),
        ("float32", [1, {}, 3]),
        ("float32", [1, 2, 1e39]),
        ("float16", [1, 2, 70000]),
        ("float32", [1, 2, 10**400]),
        ("int32", [1, 2, 2.5]),
        ("int32", [1, 2, 2**31]),
        ("int64", [1, 2, 2**70]),
        ("uint8", [1, 2, -1]),
        ("uint8", [1, 2, 256]),
        ("uint64", [1, -2, 2**63]),
        ("uint64", [1, 2, 2**64]),
        ("uint64", [1.5, 2, 2**63]),
        ("bool", [0, 1, 0]),
        ("float32", [True, 1, 0]),
        ("uint8", [[1, True, 0]]),
    ],
)
def test_json_of_another_kind_is_refused(dtype, data):
    with pytest.raises(RequestError, match="'x'"):
        from_json(TensorSpec("x", dtype, (3,)), data)


@pytest.mark.parametrize("shape", [(200_000,), (1, 200_000)])
def test_strings_take_no_more_memory_than_the_request(shape):
    data: list = [""] * 199_999 + ["x" * 100_000]  # 80 GB as numpy keeps strings
    tracemalloc.start()
    with pytest.raises(RequestError, match="not FP32 numbers"):
        from_json(TensorSpec("x", "float32", shape), data if len(shape) == 1 else [data])
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_nested_deeper_than_arrays_go():
    data: list = [1.0]
    for _ in range(200):
        data = [data]
    with pytest.raises(RequestError, match="nested like the shape"):
        from_json(TensorSpec("x", "float32", (1,)), data)


@pytest.mark.parametrize("size", [0, 11, 13])
def test_binary_of_another_size_is_refused(size):
    with pytest.raises(RequestError, match=f"has 12 bytes, got {size}"):
        from_binary(TensorSpec("x", "float32", (3,)), memoryview(bytes(size)))


def test_a_boolean_is_zero_or_one():
    with pytest.raises(RequestError, match="0 or 1"):
        from_binary(TensorSpec("x", "bool", (2,)), memoryview(b"\x01\x02"))


@pytest.mark.parametrize(
    ("datatype", "shape", "words"),
    [
        ("FP64", [4, 3], "takes FP32, got FP64"),
        ("float", [4, 3], "unknown datatype 'float'"),
        (None, [4, 3], "unknown datatype None"),
        (["FP32"], [4, 3], "unknown datatype"),
        ("FP32", "4,3", "list of integers"),
        ("FP32", [4, 3.0], "list of integers"),
        ("FP32", [4, True], "list of integers"),
        ("FP32", [4], "takes shape \\[4, 3\\], got \\[4\\]"),
        ("FP32", [3], "batch axis is missing"),
        ("FP32", [8, 3], "compiled for batches of 4"),
        ("FP32", [4, -1], "got \\[4, -1\\]"),
        ("FP32", [1] * 10000, "got \\[1, 1"),
    ],
)
def test_declarations(datatype, shape, words):
    with pytest.raises(RequestError, match=words) as caught:
        check_declaration(TensorSpec("x", "float32", (4, 3)), datatype, shape)
    assert len(str(caught.value)) < 250


def test_every_datatype_has_a_dtype_of_its_size():
    sizes = {name: np.dtype(dtype).itemsize * 8 for dtype, name in DATATYPES.items()}
    assert sizes.pop("BOOL") == 8
    assert all(name.endswith(str(size)) for name, size in sizes.items())


@given(st.recursive(st.none() | st.text() | st.floats(), st.lists, max_leaves=50))
def test_what_is_quoted_is_short_and_printable(value):
    assert len(brief(value)) <= 60
    assert brief(value).isascii()
    assert "\n" not in brief(value)
