"""Operators that keep values do the same to bfloat16 as to float32."""

import ml_dtypes
import numpy as np
import pytest
from conv_workloads import pool_workload
from kernel_harness import HOST, normal, run

from neocpu.schedules.operators.concat import lower_concat, lower_gather
from neocpu.schedules.operators.pool import lower_global_pool, lower_pool
from neocpu.schedules.operators.pool_workload import StoredHalves
from neocpu.schedules.operators.resize import ResizeWorkload, lower_resize
from neocpu.schedules.vocabulary.layout import DataLayout, Format

HALF = ml_dtypes.bfloat16
BLOCKS = pytest.mark.parametrize("block", [1, 8, 32])


def halves(shape, seed=0):
    """Return numbers of bfloat16, with infinities and the smallest that kernels keep."""
    x = normal(shape, seed).astype(HALF)
    x.reshape(-1)[:5] = [np.inf, -np.inf, 1.2e-38, -0.0, 3e38]
    return x


def same(lower, inputs, layout, shape, *tables):
    """Check that a bfloat16 kernel agrees with the float32 kernel on the same numbers."""
    made = [
        run(
            lower(Format(layout, dtype)),
            [*(layout.pack(x.astype(kind)) for x in inputs), *tables],
            layout.shape(shape),
            dtype,
        )
        for dtype, kind in (("bfloat16", HALF), ("float32", np.float32))
    ]
    np.testing.assert_array_equal(made[0].view(HALF).astype(np.float32), made[1])


@BLOCKS
def test_concatenation(block):
    shapes = [(2, 17, 5, 3), (2, 8, 5, 3), (2, 32, 5, 3)]
    inputs = [halves(shape, seed) for seed, shape in enumerate(shapes)]
    same(lambda f: lower_concat(shapes, 1, HOST, f), inputs, DataLayout(block), (2, 57, 5, 3))


@BLOCKS
def test_slices(block):
    shapes, slices = [(2, 17, 5, 3), (2, 40, 5, 3)], ((3, 16), (8, 33))
    inputs = [halves(shape, seed) for seed, shape in enumerate(shapes)]
    same(lambda f: lower_gather(shapes, slices, HOST, f), inputs, DataLayout(block), (2, 38, 5, 3))


@BLOCKS
def test_nearest_pixels(block):
    workload = ResizeWorkload((2, 17, 5, 3), (10, 7), "nearest_neighbor", "asymmetric", -0.75)
    same(
        lambda form: lower_resize(workload, form, HOST),
        [halves(workload.shape)],
        DataLayout(block),
        workload.output_shape,
        *workload.tables(),
    )


@BLOCKS
@pytest.mark.parametrize("kernel", [(3, 3), (1, 2), (9, 11)])
def test_maxima(block, kernel):
    padding = (1, 0, 1, 1) if kernel == (3, 3) else (0, 0, 0, 0)

    def pool(dtype="float32"):
        more = {"stride": (2, 1), "padding": padding, "dtype": dtype}
        return pool_workload("max", (2, 17, 9, 11), kernel, **more)

    def lower(form):
        return lower_pool(pool(form.dtype), form.layout, HOST)

    same(lower, [halves((2, 17, 9, 11))], DataLayout(block), pool().output_shape)


@BLOCKS
def test_means_are_of_float32(block):
    """Means of windows and of whole maps read bfloat16 and write float32."""
    layout, x = DataLayout(block), normal((2, 17, 6, 8)).astype(HALF)
    wide, stored = x.astype(np.float32), StoredHalves()
    pool = pool_workload("avg", (2, 17, 6, 8), (2, 2), stride=(2, 2), stored=stored)
    found = run(lower_pool(pool, layout, HOST), [layout.pack(x)], layout.shape((2, 17, 3, 4)))
    expected = wide.reshape(2, 17, 3, 2, 4, 2).mean((3, 5))
    np.testing.assert_allclose(layout.unpack(found, 17), expected, rtol=1e-5, atol=1e-6)
    form = Format(layout, "float32")
    whole = lower_global_pool("avg", x.shape, form, HOST, stored)
    found = run(whole, [layout.pack(x)], layout.shape((2, 17, 1, 1)))
    expected = wide.mean((2, 3), keepdims=True)
    np.testing.assert_allclose(layout.unpack(found, 17), expected, rtol=1e-5, atol=1e-6)
