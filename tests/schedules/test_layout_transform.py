"""Layout transforms against numpy's pack and unpack."""

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, compile_for, normal, run

from neocpu.schedules.layout import NCHW, DataLayout
from neocpu.schedules.layout_transform import (
    estimate_transform,
    lower_transform,
    transform_bytes,
)

SHAPES = [(1, 1, 1, 1), (2, 3, 1, 2), (1, 17, 5, 7), (3, 31, 4, 4), (1, 64, 23, 29), (2, 33, 3, 5)]


def transform(x, source, destination, target=HOST):
    func = lower_transform(x.shape, source, destination, target)
    return run(func, [source.pack(x)], destination.shape(x.shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("block", [2, 3, 8, 16, 24, 64])
def test_pack_and_unpack(shape, block):
    x, layout = normal(shape), DataLayout(block)
    np.testing.assert_array_equal(transform(x, NCHW, layout), layout.pack(x))
    np.testing.assert_array_equal(transform(x, layout, NCHW), x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("source", "destination"), [(16, 32), (32, 16), (8, 64), (6, 4), (5, 7)])
def test_regroup(shape, source, destination):
    x = normal(shape)
    got = transform(x, DataLayout(source), DataLayout(destination))
    np.testing.assert_array_equal(got, DataLayout(destination).pack(x))


def test_unpack_ignores_what_padded_lanes_hold():
    layout = DataLayout(16)
    packed = layout.pack(np.zeros((1, 17, 6, 6), np.float32))
    packed[:, 1, :, :, 1:] = 99.0
    got = run(lower_transform((1, 17, 6, 6), layout, NCHW, HOST), [packed], (1, 17, 6, 6))
    assert not got.any()


def test_narrow_vectors_give_the_same():
    x, layout = normal((1, 40, 9, 9)), DataLayout(16)
    for target in FOREIGN[:2]:  # narrower or equal x86 vectors are legal here too
        np.testing.assert_array_equal(transform(x, NCHW, layout, target), layout.pack(x))


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_compiles_for_other_cpus(target):
    for source, destination in ((NCHW, DataLayout(8)), (DataLayout(4), DataLayout(8))):
        func = lower_transform((1, 65, 30, 30), source, destination, target)
        assert "T.parallel" in func.script()
        assert "main" in compile_for(func, target)


def test_cost_is_zero_only_for_equal_layouts():
    shape = (1, 17, 8, 8)
    assert transform_bytes(shape, NCHW, DataLayout(16)) == 4 * 64 * (17 + 32)
    assert estimate_transform(shape, NCHW, NCHW, HOST, 2) == 0
    small = estimate_transform(shape, NCHW, DataLayout(16), HOST, 2)
    large = estimate_transform((1, 512, 80, 80), NCHW, DataLayout(16), HOST, 2)
    assert 0 < small < large
