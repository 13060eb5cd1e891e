"""Elementwise and concat workloads: their kernels agree with numpy."""

import numpy as np
import pytest
from conv_workloads import join
from kernel_harness import HOST, normal, run

from neocpu.schedules import registry
from neocpu.schedules.operators.concat import is_shifted
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import JoinScheme


def check(workload, expected):
    inputs = [normal(shape, seed) for seed, shape in enumerate(workload.input_shapes)]
    assert registry.schemes(workload, HOST) == (JoinScheme(),)
    *_, (shape, _) = registry.argument_shapes(workload, JoinScheme())
    layout = DataLayout(workload.block)
    packed = [layout.pack(x) for x in inputs]
    got = run(registry.lower(workload, JoinScheme(), HOST, 2), packed, shape)
    got = layout.unpack(got, workload.output_shape[1])
    tolerance = 0 if workload.operator == "concat" else 1e-6
    np.testing.assert_allclose(got, expected(inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_elementwise_is_the_rectified_sum(block, count):
    workload = join("elementwise", (40,) * count, (2, 7, 9), block)
    check(workload, lambda inputs: np.maximum(sum(inputs), 0))


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("channels", [(32, 64), (17, 31, 5)])
def test_concat_joins_channels(block, channels):
    check(join("concat", channels, (2, 7, 9), block), lambda inputs: np.concatenate(inputs, 1))


def test_shifted_parts_cost_more():
    def costs(operator, *channels):
        workloads = (join(operator, each, (1, 28, 28), 16) for each in channels)
        return [registry.estimate(each, JoinScheme(), HOST, 2) for each in workloads]

    fits, shifts = costs("concat", (64, 64), (72, 56))
    assert shifts > 1.9 * fits
    filled, padded = costs("elementwise", (80, 80), (72, 72))
    assert filled == padded  # the same blocks, and nothing to shift
    assert not is_shifted((16, 5), 16)  # what follows the last part is padding
    assert is_shifted((5, 16), 16)
