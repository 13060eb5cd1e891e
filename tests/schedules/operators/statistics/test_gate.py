"""The gate of squeeze and excitation against numpy, of layers shorter and longer than vectors."""

import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.statistics.gate import (
    ChannelWindowWorkload,
    GateWorkload,
    lanes_of,
    lower_channel_window,
    lower_gate,
    pack_layer,
)
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.workload import EpilogueOp

BIAS, RELU, SIGMOID = EpilogueOp("bias_add"), EpilogueOp("relu"), EpilogueOp("sigmoid")
STEPS = (BIAS, RELU), (BIAS, SIGMOID)
WORKLOADS = [
    GateWorkload((1, 12, 9, 11), 5, 12, *STEPS),
    GateWorkload((2, 33, 3, 3), 1, 17, *STEPS),
    GateWorkload((1, 672, 5, 7), 168, 669, *STEPS),
    # Layers that write as much as they read, in several blocks, and of their neighbours.
    GateWorkload((1, 64, 7, 5), 64, 64, *STEPS),
    GateWorkload((1, 64, 7, 5), 63, 64, *STEPS),
    GateWorkload((1, 64, 7, 5), 65, 64, *STEPS),
    GateWorkload((2, 64, 64, 64), 32, 64, *STEPS),
    GateWorkload((64, 64, 1, 1), 64, 48, *STEPS),
    GateWorkload((1, 128, 8, 8), 64, 128, *STEPS),
    GateWorkload((17, 17, 17, 17), 17, 17, *STEPS),
]


def reference(x, inner, inner_bias, outer, outer_bias):
    means = x.astype(np.float64).mean((2, 3))
    squeezed = np.maximum(means @ inner.T + inner_bias, 0)
    return (1 / (1 + np.exp(-(squeezed @ outer.T + outer_bias))))[:, :, None, None]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("block", [1, 16])
def test_matches_numpy(workload, block):
    form, layout = float32(block), DataLayout(block)
    depth, hidden, channels = workload.shape[1], workload.hidden, workload.channels
    x = normal(workload.shape) + 1
    layers = normal((hidden, depth), 1) / 8, normal((hidden,), 2), normal((channels, hidden), 3) / 8
    last = normal((channels,), 4)
    lanes = lanes_of(workload, form)
    packed = [
        pack_layer(layers[0], hidden, HOST),
        layers[1],
        pack_layer(layers[2], lanes, HOST),
        np.pad(last, (0, lanes - channels)),
    ]
    shape = layout.shape(workload.output_shape)
    got = run(lower_gate(workload, form, HOST), [layout.pack(x), *packed], shape)
    assert np.isfinite(got).all()
    expected = reference(x, *layers, last)
    np.testing.assert_allclose(layout.unpack(got, channels), expected, rtol=1e-4, atol=1e-5)


def test_padded_lanes_are_zeros():
    workload, form = GateWorkload((1, 3, 2, 2), 2, 3, (), ()), float32(4)
    x = np.full(form.shape(workload.shape), np.inf, np.float32)
    ones = np.ones((3, 2), np.float32)
    weights = pack_layer(ones.T, 2, HOST), pack_layer(ones, 4, HOST)
    got = run(lower_gate(workload, form, HOST), [x, *weights], form.shape(workload.output_shape))
    assert got.reshape(-1).tolist() == [np.inf] * 3 + [0]


WINDOWS = [
    ChannelWindowWorkload((1, 37, 5, 7), 3, 1, (SIGMOID,)),
    ChannelWindowWorkload((2, 16, 3, 3), 5, 2, (BIAS, SIGMOID)),
    ChannelWindowWorkload((3, 2, 1, 2), 4, 3),
    ChannelWindowWorkload((1, 1, 9, 1), 1, 0, (BIAS,)),
    ChannelWindowWorkload((2, 67, 2, 2), 9, 0, (SIGMOID,)),
    ChannelWindowWorkload((17, 17, 17, 17), 17, 8, (BIAS, SIGMOID)),
    ChannelWindowWorkload((1, 64, 8, 8), 1, 0, (SIGMOID,)),
]


def gate_of_windows(workload, x, taps, bias):
    means = x.astype(np.float64).mean((2, 3))
    line = np.pad(means, ((0, 0), (workload.before, workload.taps - 1 - workload.before)))
    windows = np.lib.stride_tricks.sliding_window_view(line, workload.taps, 1)
    sums = windows @ taps.astype(np.float64) + bias
    gate = 1 / (1 + np.exp(-sums)) if SIGMOID in workload.after else sums
    return gate[:, :, None, None]


@pytest.mark.parametrize("workload", WINDOWS, ids=str)
@pytest.mark.parametrize("block", [1, 16])
def test_windows_match_numpy(workload, block):
    form, layout, channels = float32(block), DataLayout(block), workload.shape[1]
    x, taps = normal(workload.shape) + 1, normal((workload.taps,), 1)
    shape = layout.shape(workload.output_shape)
    lanes = int(np.prod(shape[1:]))
    biased = BIAS in workload.after
    vectors = [np.full(lanes, 0.5, np.float32)] * biased
    got = run(lower_channel_window(workload, form, HOST), [layout.pack(x), taps, *vectors], shape)
    expected = gate_of_windows(workload, x, taps, 0.5 * biased)
    np.testing.assert_allclose(layout.unpack(got, channels), expected, rtol=1e-4, atol=1e-5)
    assert not got[layout.pack(np.ones(workload.output_shape, np.float32)) == 0].any()
