"""Kernels of single stages whose last axes are merged into one."""

import numpy as np
import pytest
from kernel_harness import HOST, run
from tvm import te, tirx

from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.vocabulary.target_parsing import parse_target

VECTORS_OF_16 = parse_target("llvm -mcpu=skylake-avx512")

OTHERS = {
    "same": lambda shape: shape,
    "row": lambda shape: (1, shape[1], 1, 1),
    "number": lambda shape: (1, 1, 1, 1),
    "map": lambda shape: (1, 1, *shape[2:]),
    "column": lambda shape: (1, 1, shape[2], 1),
    "mixed": lambda shape: (*shape[:2], 1, shape[3]),
}


def summed(shape, other, dtype):
    """Return ``PrimFunc(x, z, y)``: the sum of a tensor and one that is broadcast to it."""
    x, z = te.placeholder(shape, dtype, name="x"), te.placeholder(other, dtype, name="z")

    def add(*at):
        place = [i if extent > 1 else 0 for i, extent in zip(at, other, strict=True)]
        return x[at] + z[tuple(place)]

    return te.create_prim_func([x, z, te.compute(shape, add, name="y")])


def ranks(func):
    return [len(param.ty.shape) for param in func.params]


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(
    "shape", [(1, 16, 56, 56), (2, 3, 28, 28), (3, 7, 4, 8), (1, 5, 7, 9), (1, 1, 1, 1)]
)
def test_sums_over_merged_axes_are_right(shape, other, dtype):
    data = np.random.default_rng(0)
    x, z = (data.integers(-50, 50, each).astype(dtype) for each in (shape, OTHERS[other](shape)))
    func = schedule_function(summed(shape, z.shape, dtype), HOST)
    np.testing.assert_array_equal(run(func, [x, z], shape, dtype), x + z)


@pytest.mark.parametrize(
    ("shape", "other", "merged"),
    [
        ((1, 16, 56, 56), "same", [3, 3, 3]),
        ((1, 16, 56, 56), "row", [3, 4, 3]),
        ((1, 16, 56, 64), "same", [4, 4, 4]),  # rows are whole vectors
        ((1, 16, 56, 56), "column", [4, 4, 4]),  # not walked through along both axes
        ((1, 16, 7, 7), "same", [2, 2, 2]),  # a map is no whole number of vectors, 16 are
        ((1, 16, 7, 7), "row", [4, 4, 4]),
        ((1, 3, 7, 7), "same", [4, 4, 4]),
    ],
)
def test_contiguous_axes_are_merged(shape, other, merged):
    func = schedule_function(summed(shape, OTHERS[other](shape), "float32"), VECTORS_OF_16)
    assert ranks(func) == merged


def test_a_buffer_that_is_read_twice_alike_is_merged_once():
    x = te.placeholder((1, 16, 56, 56), name="x")
    squares = te.compute(x.shape, lambda *at: x[at] * tirx.exp(x[at]), name="y")
    func = schedule_function(te.create_prim_func([x, squares]), HOST)
    data = np.random.default_rng(0).random((1, 16, 56, 56), np.float32)
    np.testing.assert_allclose(run(func, [data], data.shape), data * np.exp(data), rtol=1e-5)


def test_a_tensor_without_axes_is_scheduled():
    x = te.placeholder((), name="x")
    func = schedule_function(te.create_prim_func([x, te.compute((), lambda: x[()] + 1)]), HOST)
    assert run(func, [np.float32(2)], ()) == 3
