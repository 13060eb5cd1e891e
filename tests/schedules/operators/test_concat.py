"""Concatenations and slices of channels against numpy, in NCHW, row-major and NCHW[x]c."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.concat import lower_concat, lower_gather
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format


def check(shapes, axis, layout):
    inputs = [normal(shape, seed) for seed, shape in enumerate(shapes)]
    expected = np.concatenate(inputs, axis)
    func = lower_concat(shapes, axis, HOST, Format(layout, "float32"))
    if layout.block == 1:
        got = run(func, inputs, expected.shape)
    else:
        got = run(func, [layout.pack(x) for x in inputs], layout.shape(expected.shape))
        assert np.isfinite(got).all()
        got = layout.unpack(got, expected.shape[1])
    np.testing.assert_array_equal(got, expected)
    return func


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("block", [1, 8])
def test_concatenation_along_every_axis(axis, block):
    shapes = [[2, 16, 5, 7], [2, 16, 5, 7], [2, 16, 5, 7]]
    for shape, extent in zip(shapes, (8, 16, 3), strict=True):
        shape[axis] = extent
    check([tuple(shape) for shape in shapes], axis, DataLayout(block))


@pytest.mark.parametrize("channels", [(1, 3, 5), (16, 32), (17, 31, 33), (32, 7), (7, 16)])
@pytest.mark.parametrize("block", [1, 4, 16, 32])
@pytest.mark.parametrize("batch", [1, 3])
def test_concatenation_of_channels(channels, block, batch):
    check([(batch, c, 9, 11) for c in channels], 1, DataLayout(block))


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 4), (1, 40, 40, 40)])
def test_other_ranks_and_large_runs(shape):
    check([shape, shape], len(shape) - 1, NCHW)
    check([shape, shape], 0, NCHW)


def test_packed_tensors_are_concatenated_by_their_physical_shapes():
    layout, inputs = DataLayout(8), [normal((1, c, 5, 3), c) for c in (8, 24)]
    packed = [layout.pack(x) for x in inputs]
    func = lower_concat([x.shape for x in packed], 1, HOST, float32(1))
    got = run(func, packed, (1, 4, 5, 3, 8))
    np.testing.assert_array_equal(layout.unpack(got, 32), np.concatenate(inputs, 1))


def test_large_copies_run_in_parallel():
    assert "T.parallel" in check([(1, 64, 14, 14), (1, 32, 14, 14)], 1, DataLayout(16)).script()
    assert "T.parallel" not in check([(1, 3, 4, 4), (1, 2, 4, 4)], 1, NCHW).script()


@pytest.mark.parametrize(
    ("channels", "slices"),
    [
        ((16,), ((0, 16),)),
        ((17,), ((5, 6),)),
        ((58, 58), ((0, 29), (0, 29))),
        ((32, 24, 7), ((8, 24), (0, 24), (3, 7))),
        ((5, 5, 40), ((4, 5), (0, 1), (1, 39))),
        ((150, 90), ((3, 149), (2, 90))),
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize(("batch", "height", "width"), [(3, 1, 1), (2, 9, 11)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_slices(channels, slices, block, batch, height, width, dtype):
    layout = DataLayout(block)
    shapes = [(batch, c, height, width) for c in channels]
    inputs = [np.abs(60 * normal(s, seed)).astype(dtype) for seed, s in enumerate(shapes)]
    parts = [x[:, first:end] for x, (first, end) in zip(inputs, slices, strict=True)]
    expected = np.concatenate(parts, axis=1)
    func = lower_gather(shapes, slices, HOST, Format(layout, dtype))
    packed = [layout.pack(x) for x in inputs]
    got = run(func, packed, layout.shape(expected.shape), dtype)
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(layout.unpack(got, expected.shape[1]), expected)


def test_many_channels_are_a_loop():
    """LLVM would take minutes for hundreds of unrolled chunks."""

    def stores(channels: int) -> int:
        shapes = [(1, channels, 7, 7), (1, 40, 7, 7)]
        func = lower_gather(shapes, [(3, channels), (0, 40)], HOST, float32(16))
        return func.script().count("] = ")

    assert stores(16 * 200) == stores(16 * 20) < 20
