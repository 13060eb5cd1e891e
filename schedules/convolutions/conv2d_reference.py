"""A reference for convolutions with their epilogues, in numpy, independent of TVM, layouts and
templates. It takes milliseconds of a ResNet's layers, by one matrix product per kernel tap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import array_dtype, from_bits
from neocpu.foundation.dtypes import DTYPES
from neocpu.schedules.vocabulary.scheme import Scheme, WinogradScheme
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL, STEP_KINDS, TENSOR
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

Array: TypeAlias = NDArray[Any]

# The largest error that float32 rounding explains, in units of the output's root mean square: sums
# in another order, and for Winograd also the size of its transforms' coefficients.
TOLERANCE, WINOGRAD_TOLERANCE = 1e-4, 1e-3
# The same for Winograd's convolution of bfloat16, whose integers have 9 bits and more.
SCALED_TOLERANCE = 3e-2
# The share of integers that may be off by a step because their sums were rounded before.
ROUNDED = 0.01
# The largest relative change of a number that is stored in bfloat16.
BFLOAT16_ROUNDING = 2.0**-8
GARBAGE = np.float32(7.0)


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of a convolution: data ``(N, C, H, W)``, weights ``(O, I / groups, KH, KW)``, and
    operands of steps: ``(C,)`` per channel, ``(N, C, 1, 1)`` for a gate, else the output's shape.
    ``border`` is the value around the image, the zero point of the data's integers.
    """

    data: Array
    weights: Array
    epilogue: tuple[Array, ...]
    prologue: tuple[Array, ...] = ()
    border: int = 0


def random_operands(workload: Conv2dWorkload, seed: int) -> Operands:
    """Return random operands, scaled so that outputs neither saturate nor become infinite: float32
    with sums of about unit variance, integers with all their values.
    """
    rng = np.random.default_rng(seed)
    fan_in = math.prod(workload.kernel_shape[1:])
    numerics = workload.numerics
    in_bytes = numerics.computes_in_float32 and numerics.data == "uint8"

    def values(shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Array:
        if DTYPES[dtype].is_float:
            return (rng.standard_normal(shape, np.float32) * scale).astype(array_dtype(dtype))
        span = np.iinfo(dtype)
        if span.bits > 16:  # a bias, which must not vanish beside the sums
            return rng.integers(-1 << 16, 1 << 16, shape, dtype)
        return rng.integers(span.min, span.max, shape, dtype, endpoint=True)

    def bounded(weights: Array) -> Array:
        # This many products by at most 255 then fit 16 bits.
        if not numerics.int16_sums:
            return weights
        each = 128 // numerics.int16_sums
        return (weights.astype(np.int32) % (2 * each + 1) - each).astype(weights.dtype)

    def of_step(op: EpilogueOp, shape: tuple[int, ...], dtype: str) -> Array:
        if op.kind != "rescale":
            return values(shape, dtype)
        # The sums of uniform integers are then within a few hundred.
        spread = rng.random(shape, np.float32) + np.float32(0.5)
        return spread / np.float32(200 * math.sqrt(fan_in))

    data = values(workload.input_shape, numerics.data)
    stored, scale = ("int8", 1.0) if in_bytes else (numerics.weights, 1 / math.sqrt(fan_in))
    drawn = values(workload.kernel_shape, stored, scale)
    weights = bounded(drawn).astype(array_dtype(numerics.weights), copy=False)
    shapes = {PER_CHANNEL: (workload.out_channels,), TENSOR: workload.output_shape}
    after = [
        of_step(op, shapes[op.operand], dtype)
        for op, dtype in zip(workload.epilogue, workload.epilogue_types, strict=True)
        if op.operand != NO_OPERAND
    ]
    gate = (*workload.input_shape[:2], 1, 1)
    before = [
        values((workload.in_channels,) if op.operand == PER_CHANNEL else gate, numerics.data)
        for op in workload.prologue
        if op.operand != NO_OPERAND
    ]
    border = int(rng.integers(1, 100)) if workload.pads_with_zero_point else 0
    return Operands(data, weights, tuple(after), tuple(before), border)


def kernel_arguments(
    workload: Conv2dWorkload, scheme: Scheme, operands: Operands, packed_weights: Array
) -> list[Array]:
    """Return a kernel's arguments in the layouts of ``scheme``, with garbage in padded channels."""
    data = scheme.in_layout.pack(operands.data)
    if scheme.in_layout.block > 1:
        lanes = np.arange(data.shape[1] * data.shape[4]).reshape(data.shape[1], 1, 1, -1)
        data = np.where(lanes < workload.image_channels, data, GARBAGE.astype(data.dtype))
    border = np.full(scheme.in_layout.block, operands.border, operands.data.dtype)
    both = (scheme.in_layout, operands.prologue), (scheme.out_layout, operands.epilogue)
    return [
        data,
        packed_weights,
        *((border,) if workload.pads_with_zero_point else ()),
        *(
            layout.pack_channels(array) if array.ndim == 1 else layout.pack(array)
            for layout, arrays in both
            for array in arrays
        ),
    ]


def conv2d(workload: Conv2dWorkload, operands: Operands) -> Array:
    """Return the convolution with all fused steps, ``(N, O, OH, OW)``: integers in the output's
    type, floats in the data's, so that float64 is exact, and bfloat16 in float32.
    """
    data = _steps(_real(operands.data), workload.prologue, operands.prologue)
    numerics = workload.numerics
    if np.issubdtype(data.dtype, np.floating):
        value = convolve(workload, data, _real(operands.weights))
        value = _steps(value, workload.epilogue, [_real(each) for each in operands.epilogue])
        return value.astype(numerics.output) if DTYPES[numerics.output].is_integer else value
    # Products are exact in float64, and numpy multiplies matrices of integers slowly.
    whole, border = data.astype(np.float64), operands.border
    if numerics.computes_in_float32:
        whole, border = whole - border, 0
    sums = convolve(workload, whole, operands.weights, border)
    exact = sums.astype(numerics.sum)
    return _steps(exact, workload.epilogue, operands.epilogue).astype(numerics.output)


def _real(array: Array) -> Array:
    return from_bits(array) if array.dtype.name == BFLOAT16 else array


def _steps(value: Array, steps: Sequence[EpilogueOp], arrays: Sequence[Array]) -> Array:
    """Return ``value`` after the elementwise ``steps``, which read ``arrays`` in turn."""
    rest = iter(arrays)
    for op in steps:
        read: tuple[Array, ...] = ()
        if op.operand != NO_OPERAND:
            array = next(rest)
            read = (array.reshape(1, -1, 1, 1) if op.operand == PER_CHANNEL else array,)
        value = STEP_KINDS[op.kind].compute(value, *read, *op.args)
    return value


def convolve(workload: Conv2dWorkload, data: Array, weights: Array, border: int = 0) -> Array:
    """Return the convolution alone, ``(N, O, OH, OW)`` in the data's type; pads hold ``border``."""
    data = _windows(workload, data, border)
    top, left, bottom, right = workload.padding
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(data, around, constant_values=border)
    n, _, out_h, out_w = workload.output_shape
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    o, i, kernel_h, kernel_w = workload.kernel_shape
    groups = workload.groups
    # (KH, KW, groups, O / groups, I / groups): a matrix per tap and group.
    taps = np.ascontiguousarray(weights.transpose(2, 3, 0, 1), data.dtype)
    taps = taps.reshape(kernel_h, kernel_w, groups, o // groups, i)
    total = np.zeros((n, groups, o // groups, out_h * out_w), data.dtype)
    for y in range(kernel_h):
        rows = slice(y * dil_h, y * dil_h + (out_h - 1) * stride_h + 1, stride_h)
        for x in range(kernel_w):
            columns = slice(x * dil_w, x * dil_w + (out_w - 1) * stride_w + 1, stride_w)
            pixels = np.ascontiguousarray(padded[:, :, rows, columns])
            total += taps[y, x] @ pixels.reshape(n, groups, i, -1)
    return total.reshape(n, o, out_h, out_w)


def _windows(workload: Conv2dWorkload, data: Array, border: int) -> Array:
    """Return the depth slices that the windows of volumes read, as the channels of images."""
    frames = workload.frames
    if frames is None:
        return data
    n, channels, h, w = data.shape
    volumes = data.reshape(n // frames.depth, frames.depth, channels, h, w)
    around = ((0, 0), frames.padding, (0, 0), (0, 0), (0, 0))
    padded = np.pad(volumes, around, constant_values=border)
    first = np.arange(frames.out_depth)[:, None] * frames.stride
    read = padded[:, first + np.arange(frames.kernel) * frames.dilation]
    groups = read.reshape(workload.batch, frames.kernel, workload.groups, -1, h, w)
    return groups.transpose(0, 2, 1, 3, 4, 5).reshape(workload.batch, -1, h, w)


def wrong_answer(
    scheme: Scheme,
    output: Array,
    expected: Array,
    *,
    reads: str = "float32",
    may_round: bool = False,
) -> str | None:
    """Return a description of a kernel's error; None if rounding explains the difference.

    The output's padded channels may hold any finite value. Integers must be equal; with
    ``may_round``, for sums that were already rounded, a few may be off by one. ``reads`` is the
    element type of the data.
    """
    if not np.isfinite(output).all():
        return "wrong answer: not finite"
    got = scheme.out_layout.unpack(output, expected.shape[1])
    if np.issubdtype(expected.dtype, np.integer):
        far = np.abs(got.astype(np.int64) - expected)
        if may_round and far.max() <= 1 and far.mean() <= ROUNDED:
            return None
        wrong = int(np.count_nonzero(far))
        return f"wrong answer: {wrong} of {got.size} integers differ" if wrong else None
    tolerance = TOLERANCE
    if isinstance(scheme, WinogradScheme):
        tolerance = SCALED_TOLERANCE if reads == BFLOAT16 else WINOGRAD_TOLERANCE
    stored = 0.0
    if got.dtype.name == BFLOAT16:
        got, stored = from_bits(got), BFLOAT16_ROUNDING
    scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64)))) or 1.0
    error = float(np.max(np.abs(got - expected) - stored * np.abs(expected))) / scale
    if error <= tolerance:
        return None
    return f"wrong answer: largest error {error:.2g} of the output's scale"
