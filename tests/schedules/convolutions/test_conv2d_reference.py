"""The reference itself, against the definition written out pixel by pixel."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from conv_workloads import conv_workload

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import array_dtype
from neocpu.schedules.convolutions.conv2d_reference import (
    TOLERANCE,
    WINOGRAD_TOLERANCE,
    conv2d,
    convolve,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.scheme import DirectScheme, WinogradScheme
from neocpu.schedules.vocabulary.steps import AFTER
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

WORKLOADS = [
    conv_workload(1, 1, 1, 1, 1, (1, 1)),
    conv_workload(2, 3, 5, 7, 4, (3, 2), padding=(1, 0, 2, 1)),
    conv_workload(
        1, 4, 7, 6, 6, (3, 3), stride=(2, 3), padding=(2, 1, 0, 3), dilation=(2, 1), groups=2
    ),
    conv_workload(1, 5, 6, 6, 5, (3, 3), padding=(1, 1, 1, 1), groups=5),
    conv_workload(1, 3, 4, 4, 6, (1, 1), stride=(2, 2), groups=3),
]
DIRECT = DirectScheme(4, 8, reg_n=1, unroll_ker=False)
WINOGRAD = WinogradScheme(4, 8, reg_n=1, tile=4, reg_oc=8, strip=1, oc_split=False)


def by_definition(workload: Conv2dWorkload, data, weights):
    """Sum over the window of every output pixel, in Python's floats."""
    (top, left, _, _), (stride_h, stride_w) = workload.padding, workload.stride
    group_in = workload.in_channels // workload.groups
    group_out = workload.out_channels // workload.groups
    out = np.zeros(workload.output_shape)
    for n, o, y, x in np.ndindex(*workload.output_shape):
        for i, ky, kx in product(range(group_in), *map(range, workload.kernel)):
            row = y * stride_h + ky * workload.dilation[0] - top
            column = x * stride_w + kx * workload.dilation[1] - left
            if 0 <= row < workload.height and 0 <= column < workload.width:
                channel = o // group_out * group_in + i
                out[n, o, y, x] += float(data[n, channel, row, column] * weights[o, i, ky, kx])
    return out


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolution_is_the_definition(workload, dtype):
    operands = random_operands(workload, 1)
    got = convolve(workload, operands.data.astype(dtype), operands.weights)
    assert got.dtype == dtype
    expected = by_definition(workload, operands.data.astype(np.float64), operands.weights)
    np.testing.assert_allclose(got, expected, atol=1e-12 if dtype == "float64" else 1e-5)


def scalar(kind: str, x: float, y: float, args: tuple[float, ...]) -> float:
    """Apply a step to one number, implemented again with the standard library."""
    sigmoid = 1 / (1 + math.exp(-x))
    return {
        "bias_add": lambda: x + y,
        "add": lambda: x + y,
        "scale": lambda: x * y,
        "rescale": lambda: x * y,
        "round": lambda: float(round(x)),
        "quantise": lambda: float(min(max(round(x) + args[0], 0), 255)),
        "multiply": lambda: x * y,
        "prelu": lambda: x if x > 0 else x * y,
        "relu": lambda: max(x, 0.0),
        "clip": lambda: sorted((args[0], x, args[1]))[1],
        "leaky_relu": lambda: x if x > 0 else x * args[0],
        "sigmoid": lambda: sigmoid,
        "silu": lambda: x * sigmoid,
        "tanh": lambda: math.tanh(x),
        "gelu": lambda: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
        "gelu_tanh": lambda: (
            x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        ),
        "hard_swish": lambda: x * sorted((0.0, x / 6 + 0.5, 1.0))[1],
        "mish": lambda: x * math.tanh(math.log1p(math.exp(x))),
        "exp": lambda: math.exp(x),
    }[kind]()


ARGS = {"clip": (-0.5, 0.75), "leaky_relu": (0.1,), "quantise": (1.0,)}


@pytest.mark.parametrize("kind", sorted(AFTER))
def test_every_epilogue_kind(kind: str):
    args = ARGS.get(kind, ())
    workload = conv_workload(2, 3, 3, 3, 4, (1, 1), epilogue=(EpilogueOp(kind, args),))
    operands = random_operands(workload, 2)
    sums = convolve(workload, operands.data, operands.weights)
    reads = [np.zeros(())] if not operands.epilogue else list(operands.epilogue)
    if reads[0].ndim == 1:
        reads[0] = reads[0].reshape(1, -1, 1, 1)
    others = np.broadcast_to(reads[0], sums.shape)
    expected = [
        scalar(kind, float(x), float(y), args) for x, y in zip(sums.flat, others.flat, strict=True)
    ]
    got = conv2d(workload, operands)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got.ravel(), expected, rtol=2e-6, atol=1e-6)


def test_steps_are_applied_in_order_each_with_its_operand():
    epilogue = tuple(EpilogueOp(kind) for kind in ("scale", "add", "relu", "bias_add"))
    workload = conv_workload(1, 2, 3, 3, 4, (1, 1), epilogue=epilogue)
    operands = random_operands(workload, 3)
    scale, add, bias = operands.epilogue
    assert (scale.shape, add.shape, bias.shape) == ((4,), workload.output_shape, (4,))
    sums = convolve(workload, operands.data, operands.weights)
    expected = np.maximum(sums * scale[:, None, None] + add, 0) + bias[:, None, None]
    np.testing.assert_array_equal(conv2d(workload, operands), expected)


def test_a_prologue_comes_before_the_padding_and_the_product():
    prologue = (EpilogueOp("bias_add"), EpilogueOp("gate"))
    workload = conv_workload(
        2, 3, 4, 4, 5, (1, 1), padding=(1, 0, 0, 0), prologue=prologue, epilogue=prologue[:1]
    )
    operands = random_operands(workload, 6)
    bias, gate = operands.prologue
    assert (bias.shape, gate.shape) == ((3,), (2, 3, 1, 1))
    data = (operands.data + bias[:, None, None]) * gate
    expected = convolve(workload, data, operands.weights) + operands.epilogue[0][:, None, None]
    np.testing.assert_array_equal(conv2d(workload, operands), expected)
    assert np.ptp(conv2d(workload, operands)[:, :, 0], axis=-1).max() == 0  # the padded row


def test_sums_are_about_normal_whatever_the_fan_in():
    for channels in (1, 300):
        workload = conv_workload(1, channels, 16, 16, 8, (3, 3))
        operands = random_operands(workload, 4)
        spread = float(np.std(conv2d(workload, operands)))
        assert 0.7 < spread < 1.4


def test_arguments_are_packed_with_garbage_in_the_padded_lanes():
    workload = conv_workload(1, 5, 2, 2, 8, (1, 1), epilogue=(EpilogueOp("bias_add"),))
    operands = random_operands(workload, 5)
    data, weights, bias = kernel_arguments(workload, DIRECT, operands, operands.weights)
    assert data.shape == (1, 2, 2, 2, 4)
    np.testing.assert_array_equal(DIRECT.in_layout.unpack(data, 5), operands.data)
    assert np.isfinite(data).all()
    assert data[0, 1, :, :, 1:].all()
    assert weights is operands.weights
    assert bias.shape == (1, 1, 1, 1, 8)


def answer(error: float):
    expected = np.random.default_rng(6).standard_normal((1, 8, 4, 4)).astype(np.float32)
    scale = float(np.sqrt(np.mean(expected**2)))
    output = DIRECT.out_layout.pack(expected).copy()
    output.flat[3] += error * scale
    return output, expected


@pytest.mark.parametrize(
    ("scheme", "tolerance"), [(DIRECT, TOLERANCE), (WINOGRAD, WINOGRAD_TOLERANCE)]
)
def test_tolerance_is_the_algorithms(scheme, tolerance):
    assert wrong_answer(scheme, *answer(0.0)) is None
    assert wrong_answer(scheme, *answer(tolerance / 2)) is None
    assert wrong_answer(scheme, *answer(tolerance * 2)).startswith("wrong answer: largest error")


def test_wrong_answers_are_described():
    message = "wrong answer: largest error 0.3 of the output's scale"
    assert wrong_answer(DIRECT, *answer(0.3)) == message
    assert wrong_answer(DIRECT, *answer(math.nan)) == "wrong answer: not finite"
    output, expected = answer(1.0)
    assert "largest error" in wrong_answer(DIRECT, output, np.zeros_like(expected))


def test_an_outlier_may_be_rounded_to_bfloat16_and_not_by_more():
    """One large number among many near zero may err by 2^-8 of itself."""
    expected = np.zeros((1, 8, 2, 2), np.float32)
    expected[0, 3, 1, 0] = 4.0469
    for stored, wrong in ((4.0625, False), (4.03125, False), (4.09375, True)):
        output = DIRECT.out_layout.pack(expected / np.float32(4.0469) * np.float32(stored))
        assert bool(wrong_answer(DIRECT, output.astype(array_dtype(BFLOAT16)), expected)) is wrong


def test_zeros_are_the_right_answer_to_zeros():
    expected = np.zeros((1, 8, 2, 2), np.float32)
    assert wrong_answer(DIRECT, DIRECT.out_layout.pack(expected), expected) is None
