"""The gate of efficient channel attention against numpy, of channels that fill no vector."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.statistics.gate import (
    ChannelWindowWorkload,
    lower_channel_window,
)
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.workload import EpilogueOp

BIAS, SIGMOID = EpilogueOp("bias_add"), EpilogueOp("sigmoid")
WORKLOADS = [
    ChannelWindowWorkload((1, 37, 5, 7), 3, 1, (SIGMOID,)),
    ChannelWindowWorkload((2, 16, 3, 3), 5, 2, (BIAS, SIGMOID)),
    ChannelWindowWorkload((3, 2, 1, 2), 4, 3),
    ChannelWindowWorkload((1, 1, 9, 1), 1, 0, (BIAS,)),
    ChannelWindowWorkload((2, 67, 2, 2), 9, 0, (SIGMOID,)),
    ChannelWindowWorkload((17, 17, 17, 17), 17, 8, (BIAS, SIGMOID)),
    ChannelWindowWorkload((1, 64, 8, 8), 1, 0, (SIGMOID,)),
]


def reference(workload, x, taps, bias):
    means = x.astype(np.float64).mean((2, 3))
    line = np.pad(means, ((0, 0), (workload.before, workload.taps - 1 - workload.before)))
    windows = np.lib.stride_tricks.sliding_window_view(line, workload.taps, 1)
    sums = windows @ taps.astype(np.float64) + bias
    gate = 1 / (1 + np.exp(-sums)) if SIGMOID in workload.after else sums
    return gate[:, :, None, None]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("block", [1, 16])
def test_matches_numpy(workload, block):
    form, layout, channels = float32(block), DataLayout(block), workload.shape[1]
    x, taps = normal(workload.shape) + 1, normal((workload.taps,), 1)
    shape = layout.shape(workload.output_shape)
    lanes = int(np.prod(shape[1:]))
    biased = BIAS in workload.after
    vectors = [np.full(lanes, 0.5, np.float32)] * biased
    got = run(lower_channel_window(workload, form, HOST), [layout.pack(x), taps, *vectors], shape)
    expected = reference(workload, x, taps, 0.5 * biased)
    np.testing.assert_allclose(layout.unpack(got, channels), expected, rtol=1e-4, atol=1e-5)
    assert not got[layout.pack(np.ones(workload.output_shape, np.float32)) == 0].any()
