"""Elementwise and concat workloads: their kernels agree with numpy."""

import functools

import numpy as np
import pytest
from kernel_harness import HOST, normal, run

from neocpu.schedules import registry
from neocpu.schedules.operators.concat import is_shifted
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload
from neocpu.schedules.vocabulary.scheme import JoinScheme


def lowered(workload, target=HOST):
    (scheme,) = registry.schemes(workload, target)
    assert scheme == JoinScheme()
    return registry.lower(workload, scheme, target, 2)


def computed(workload, inputs):
    layout = DataLayout(workload.block)
    *_, (shape, _) = registry.argument_shapes(workload, JoinScheme())
    got = run(lowered(workload), [layout.pack(x) for x in inputs], shape)
    return layout.unpack(got, workload.output_shape[1])


def inputs_of(workload):
    return [normal(shape, seed) for seed, shape in enumerate(workload.input_shapes)]


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_elementwise_is_the_rectified_sum(block, count):
    workload = JoinWorkload(
        operator="elementwise", batch=2, channels=(40,) * count, height=7, width=9, block=block
    )
    inputs = inputs_of(workload)
    expected = np.maximum(functools.reduce(np.add, inputs), 0)
    np.testing.assert_allclose(computed(workload, inputs), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("channels", [(32, 64), (17, 31, 5)])
def test_concat_joins_channels(block, channels):
    workload = JoinWorkload(
        operator="concat", batch=2, channels=channels, height=7, width=9, block=block
    )
    inputs = inputs_of(workload)
    np.testing.assert_array_equal(computed(workload, inputs), np.concatenate(inputs, 1))


def test_shifted_parts_cost_more():
    fits, shifts = (
        JoinWorkload(
            operator="concat", batch=1, channels=(c, 128 - c), height=28, width=28, block=16
        )
        for c in (64, 72)
    )
    costs = [registry.estimate(w, JoinScheme(), HOST, 2) for w in (fits, shifts)]
    assert costs[1] > 1.9 * costs[0]
    filled, padded = (
        JoinWorkload(
            operator="elementwise", batch=1, channels=(c, c), height=28, width=28, block=16
        )
        for c in (80, 72)
    )
    costs = [registry.estimate(w, JoinScheme(), HOST, 2) for w in (filled, padded)]
    assert costs[0] == costs[1]  # the same blocks, and nothing to shift
    assert not is_shifted((16, 5), 16)  # what follows the last part is padding
    assert is_shifted((5, 16), 16)
