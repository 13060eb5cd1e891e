"""Group normalisation against numpy, of groups that fill blocks, share them and cross them."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.statistics.group_norm import (
    GroupNormWorkload,
    estimate,
    lower_group_norm,
)
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.steps import STEP_KINDS
from neocpu.schedules.vocabulary.workload import EpilogueOp
from tests import needs

EPSILON = 1e-5
WORKLOADS = [
    # One channel each; as many as two, five and all of them; one group's chunks end within one.
    ((2, 17, 5, 7), 17),
    ((1, 64, 14, 13), 32),
    ((2, 20, 3, 3), 4),
    ((1, 33, 9, 11), 1),
    ((3, 7, 1, 1), 7),
    ((1, 48, 4, 33), 3),
    ((16, 16, 16, 16), 4),
]


def reference(x, groups, gamma, beta):
    x = x.astype(np.float64)
    rows = x.reshape(len(x), groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    normalised = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    return normalised.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]


@needs.one_in(2)
@pytest.mark.parametrize("shape_and_groups", WORKLOADS, ids=str)
@pytest.mark.parametrize(("block", "threads"), [(1, 8), (4, 1), (16, 8), (64, 2)])
def test_matches_numpy(shape_and_groups, block, threads):
    shape, groups = shape_and_groups
    channels, layout = shape[1], DataLayout(block)
    x = 3 * normal(shape) + 50  # too far from zero for a single pass
    gamma, beta = normal((channels,), seed=1), normal((channels,), seed=2)
    steps = (EpilogueOp("relu"), EpilogueOp("silu"))
    workload = GroupNormWorkload(shape, groups, EPSILON, steps)
    packed = [layout.pack_channels(vector).reshape(-1) for vector in (gamma, beta)]
    got = run(
        lower_group_norm(workload, float32(block), HOST, threads),
        [layout.pack(x), *packed],
        layout.shape(shape),
    )
    assert np.isfinite(got).all()
    expected = reference(x, groups, gamma, beta)
    for step in steps:
        expected = STEP_KINDS[step.kind].compute(expected)
    np.testing.assert_allclose(layout.unpack(got, channels), expected, rtol=1e-4, atol=1e-4)


def test_the_contents_of_padded_lanes_do_not_matter():
    layout, shape = DataLayout(16), (1, 5, 3, 3)
    x = layout.pack(normal(shape))
    x[..., 5:] = 3e38
    ones = layout.pack_channels(np.ones(5, np.float32)).reshape(-1)
    workload = GroupNormWorkload(shape, 5, EPSILON)
    kernel = lower_group_norm(workload, float32(16), HOST, 1)
    got = run(kernel, [x, ones, ones], layout.shape(shape))
    assert not got[..., 5:].any()
    assert np.isfinite(got).all()


def test_statistics_of_few_groups_take_another_pass():
    few, many = (GroupNormWorkload((1, 256, 56, 56), groups, EPSILON) for groups in (1, 32))
    assert estimate(few, float32(16), HOST, 4) > 1.2 * estimate(many, float32(16), HOST, 4)
