"""Layout transforms against numpy's pack and unpack."""

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, float32, normal, run

from neocpu.schedules import registry
from neocpu.schedules.operators.layout_transform import lower_transform
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload

SHAPES = [(1, 1, 1, 1), (2, 3, 1, 2), (1, 17, 5, 7), (3, 31, 4, 4), (1, 64, 23, 29), (2, 33, 3, 5)]


def transform(x, source, destination, target=HOST):
    ends = (Format(layout, "float32") for layout in (source, destination))
    func = lower_transform(x.shape, *ends, target)
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


def test_unpacking_ignores_padded_lanes():
    layout = DataLayout(16)
    packed = layout.pack(np.zeros((1, 17, 6, 6), np.float32))
    packed[:, 1, :, :, 1:] = 99.0
    got = run(
        lower_transform((1, 17, 6, 6), float32(16), float32(1), HOST), [packed], (1, 17, 6, 6)
    )
    assert not got.any()


def test_narrow_vectors_give_the_same():
    x, layout = normal((1, 40, 9, 9)), DataLayout(16)
    for target in FOREIGN[:2]:  # narrower or equal x86 vectors are legal here too
        np.testing.assert_array_equal(transform(x, NCHW, layout, target), layout.pack(x))


def test_the_template_computes_its_workload():
    workload = TransformWorkload(batch=2, channels=33, height=3, width=5, in_block=16, out_block=8)
    (scheme,) = registry.schemes(workload, HOST)
    (packed, _), (out, _) = registry.argument_shapes(workload, scheme)
    x = normal(workload.shape)
    assert packed == DataLayout(16).shape(workload.shape)
    got = run(registry.lower(workload, scheme, HOST), [DataLayout(16).pack(x)], out)
    np.testing.assert_array_equal(got, DataLayout(8).pack(x))
