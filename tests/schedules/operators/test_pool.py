"""Pooling against a naive window-by-window reference, in both layout families."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from conv_workloads import pool_workload
from kernel_harness import HOST, normal, run

from neocpu.schedules.operators.pool import estimate, lower_global_pool, lower_pool
from neocpu.schedules.operators.pool_workload import PoolAxis, PoolWorkload, StoredData
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format


def naive_axis(size, kernel, stride, before, after, dilation, ceil_mode):
    """Return the windows of one axis as lists of padded coordinates, by the ONNX standard."""
    room = (size + before + after - dilation * (kernel - 1) - 1) / stride + 1
    outputs = math.ceil(room) if ceil_mode else math.floor(room)
    if ceil_mode and (outputs - 1) * stride >= size + before:
        outputs -= 1
    return [[o * stride - before + k * dilation for k in range(kernel)] for o in range(outputs)]


def naive_pool(x, pool: PoolWorkload):
    top, left, bottom, right = pool.padding
    rows = naive_axis(
        pool.height, pool.kernel[0], pool.stride[0], top, bottom, pool.dilation[0], pool.ceil_mode
    )
    columns = naive_axis(
        pool.width, pool.kernel[1], pool.stride[1], left, right, pool.dilation[1], pool.ceil_mode
    )
    out = np.empty((*x.shape[:2], len(rows), len(columns)), x.dtype)
    for (i, ys), (j, xs) in itertools.product(enumerate(rows), enumerate(columns)):
        pixels = [(y, z) for y in ys for z in xs if 0 <= y < pool.height and 0 <= z < pool.width]
        values = np.stack([x[:, :, y, z] for y, z in pixels])
        if pool.kind == "max":
            out[:, :, i, j] = values.max(0)
            continue
        padded = sum(y < pool.height + bottom and z < pool.width + right for y in ys for z in xs)
        out[:, :, i, j] = values.sum(0) / (padded if pool.count_include_pad else len(pixels))
    return out


def check(pool: PoolWorkload, block: int, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    x, layout = normal(pool.input_shape), DataLayout(block)
    expected = naive_pool(x, pool)
    assert expected.shape == pool.output_shape
    got = run(lower_pool(pool, layout, HOST), [layout.pack(x)], layout.shape(pool.output_shape))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(layout.unpack(got, pool.channels), expected, rtol=rtol, atol=atol)


ONE = (1, 1, 1, 1)
POOLS = [
    dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
    dict(kernel=(3, 3), stride=(2, 2), ceil_mode=True),
    dict(kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 1), ceil_mode=True),
    dict(kernel=(2, 2), stride=(2, 2), padding=(1, 1, 1, 1), ceil_mode=True),
    dict(kernel=(3, 2), stride=(1, 3), padding=(2, 0, 1, 1)),
    dict(kernel=(2, 3), dilation=(3, 2), padding=(1, 2, 2, 1)),
    dict(kernel=(5, 5), padding=(2, 2, 2, 2)),
    dict(kernel=(9, 8), padding=(4, 0, 4, 3)),
    dict(kernel=(9, 11)),
]


@pytest.mark.parametrize("options", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg", "avg+pad"])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_pool_matches_naive(options, kind, block):
    padded = kind == "avg+pad"
    check(pool_workload(kind[:3], (2, 17, 9, 11), count_include_pad=padded, **options), block)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("block", [1, 16])
def test_windows_too_large_to_unroll(kind, dilation, block):
    """LLVM would take minutes for an unrolled window of 30 x 40 pixels."""
    sizes = {"stride": (3, 2), "padding": (5, 7, 6, 8), "dilation": (dilation, dilation)}
    check(pool_workload(kind, (1, 3, 70, 90), (30, 40), **sizes), block, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 33])
@pytest.mark.parametrize("width", [35, 70])
@pytest.mark.parametrize("block", [1, 8, 64])
def test_wide_rows(channels, width, block):
    check(pool_workload("max", (1, channels, 6, width), (3, 3), padding=ONE), block, rtol=0, atol=0)


REDUCTIONS = {
    "max": np.max,
    "avg": np.mean,
    "sum": np.sum,
    "squares": lambda x, **how: np.sum(x * x, **how),
}


SIZES = [(1, 1), (7, 7), (5, 3), (13, 17)]


@pytest.mark.parametrize(
    ("kind", "size"),
    [*itertools.product(("max", "avg"), SIZES), ("sum", SIZES[-1]), ("squares", SIZES[-1])],
)
@pytest.mark.parametrize("block", [1, 3, 16, 32])
def test_global_pool(kind, size, block):
    x, layout = normal((2, 33, *size)), DataLayout(block)
    func = lower_global_pool(kind, x.shape, Format(layout, "float32"), HOST)
    got = run(func, [layout.pack(x)], layout.shape((2, 33, 1, 1)))
    expected = REDUCTIONS[kind](x, axis=(2, 3), keepdims=True)
    tolerance = 1e-6 if kind in ("max", "avg") else 1e-5
    np.testing.assert_allclose(layout.unpack(got, 33), expected, rtol=1e-5, atol=tolerance)


def test_small_pools_do_not_fork():
    pool = pool_workload("max", (1, 3, 8, 8), (2, 2), stride=(2, 2))
    assert "T.parallel" not in lower_pool(pool, DataLayout(1), HOST).script()


def test_larger_windows_cost_more_and_nchw_rows_pay_for_their_ends():
    small = pool_workload("avg", (1, 64, 28, 28), (3, 3), padding=ONE)
    large = replace(small, kernel=(5, 5), padding=(2, 2, 2, 2))
    blocked = DataLayout(HOST.lanes("float32"))
    assert 0 < estimate(small, blocked, HOST, 2) < estimate(large, blocked, HOST, 2)
    assert estimate(small, blocked, HOST, 2) < estimate(small, blocked, HOST, 1)
    narrow = replace(small, height=112, width=7)  # as many pixels in shorter rows
    assert estimate(narrow, blocked, HOST, 2) == estimate(small, blocked, HOST, 2)
    assert estimate(narrow, NCHW, HOST, 2) > estimate(small, NCHW, HOST, 2)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (2, 2, 1), (3, 2, 2)])
def test_interior_windows_are_those_within_the_data(size, before, kernel, stride, dilation):
    steps = {"kernel": kernel, "stride": stride, "dilation": dilation}
    axis = PoolAxis(size=size, before=before, after=3, ceil_mode=False, **steps)
    first, last = axis.interior
    assert 0 <= first <= last <= axis.outputs
    for out in range(axis.outputs):
        taps = [axis.position(out, tap) for tap in range(kernel)]
        assert (first <= out < last) == all(0 <= tap < size for tap in taps)


@pytest.mark.parametrize("layout", [NCHW, DataLayout(8), DataLayout(16)], ids=str)
@pytest.mark.parametrize("options", POOLS[:8], ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_means_of_bytes_are_means_of_their_real_values(options, layout, padded):
    stored = StoredData(0.037, 91)
    more = {"count_include_pad": padded, "stored": stored}
    pool = pool_workload("avg", (2, 17, 9, 11), **more, **options)
    x = np.random.default_rng(1).integers(0, 256, pool.input_shape).astype(np.uint8)
    real = (x.astype(np.float64) - stored.zero) * stored.scale
    func = lower_pool(pool, layout, HOST)
    got = layout.unpack(run(func, [layout.pack(x)], layout.shape(pool.output_shape)), 17)
    expected = naive_pool(real, replace(pool, stored=None))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [NCHW, DataLayout(8)], ids=str)
@pytest.mark.parametrize("size", [(1, 1), (7, 7), (13, 5)], ids=str)
def test_global_means_of_bytes(size, layout):
    stored = StoredData(0.11, 3)
    x = np.random.default_rng(2).integers(0, 256, (2, 19, *size)).astype(np.uint8)
    func = lower_global_pool("avg", x.shape, Format(layout, "float32"), HOST, stored)
    got = layout.unpack(run(func, [layout.pack(x)], layout.shape((2, 19, 1, 1))), 19)
    expected = ((x.astype(np.float64) - 3) * 0.11).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
