"""Concatenation against numpy, in NCHW, plain row-major and NCHW[x]c."""

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, compile_for, float32, normal, run

from neocpu.schedules.operators.concat import lower_concat
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


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_compiles_for_other_cpus(target):
    func = lower_concat([(1, 64, 28, 28), (1, 33, 28, 28)], 1, target, float32(8))
    assert "main" in compile_for(func, target)
