"""What a convolution and its epilogue must compute, written from the definition in numpy.

Independent of TVM, of layouts and of every template, so that a kernel's answer can be checked. One
matrix product per kernel tap, so that a ResNet's layers take milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.scheme import Scheme, WinogradScheme
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL, STEP_KINDS
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

Array: TypeAlias = NDArray[Any]

# Largest error, in units of the output's root mean square, that float32 rounding explains: sums in
# another order, and for Winograd the size of its transforms' coefficients too.
TOLERANCE, WINOGRAD_TOLERANCE = 1e-4, 1e-3
GARBAGE = np.float32(7.0)


@dataclass(frozen=True, slots=True)
class Operands:
    """What a convolution reads, in plain layouts.

    Attributes
    ----------
    data : array
        ``(N, C, H, W)``.
    weights : array
        ``(O, I / groups, KH, KW)``.
    epilogue : tuple of array
        Of each step that reads one, in order: ``(O,)`` per channel, or of the output's shape.
    prologue : tuple of array
        The same for the steps in front: ``(C,)`` per channel, or ``(N, C, 1, 1)`` of a gate.
    """

    data: Array
    weights: Array
    epilogue: tuple[Array, ...]
    prologue: tuple[Array, ...] = ()


def random_operands(workload: Conv2dWorkload, seed: int) -> Operands:
    """Return normal float32 operands, scaled so that the sums are about normal too.

    Activations are then neither saturated nor infinite, however many channels are summed.
    """
    rng = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...]) -> Array:
        return rng.standard_normal(shape, np.float32)

    fan_in = math.prod(workload.kernel_shape[1:])
    shapes = [
        (workload.out_channels,) if op.operand == PER_CHANNEL else workload.output_shape
        for op in workload.epilogue
        if op.operand != NO_OPERAND
    ]
    gate = (*workload.input_shape[:2], 1, 1)
    before = [
        (workload.in_channels,) if op.operand == PER_CHANNEL else gate
        for op in workload.prologue
        if op.operand != NO_OPERAND
    ]
    return Operands(
        normal(workload.input_shape),
        normal(workload.kernel_shape) / np.float32(math.sqrt(fan_in)),
        tuple(normal(shape) for shape in shapes),
        tuple(normal(shape) for shape in before),
    )


def kernel_arguments(
    workload: Conv2dWorkload, scheme: Scheme, operands: Operands, packed_weights: Array
) -> list[Array]:
    """Return what a kernel of ``scheme`` reads: ``operands`` in its layouts.

    The padded lanes of the data hold garbage, for they are unspecified: no answer may depend on it.
    """
    data = scheme.in_layout.pack(operands.data)
    if scheme.in_layout.block > 1:
        lanes = np.arange(data.shape[1] * data.shape[4]).reshape(data.shape[1], 1, 1, -1)
        data = np.where(lanes < workload.in_channels, data, GARBAGE)
    both = (scheme.in_layout, operands.prologue), (scheme.out_layout, operands.epilogue)
    return [
        data,
        packed_weights,
        *(
            layout.pack_channels(array) if array.ndim == 1 else layout.pack(array)
            for layout, arrays in both
            for array in arrays
        ),
    ]


def conv2d(workload: Conv2dWorkload, operands: Operands) -> Array:
    """Return the convolution with all that is fused, ``(N, O, OH, OW)``, in the data's type."""
    data = _steps(operands.data, workload.prologue, operands.prologue)
    value = convolve(workload, data, operands.weights)
    return _steps(value, workload.epilogue, operands.epilogue)


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


def convolve(workload: Conv2dWorkload, data: Array, weights: Array) -> Array:
    """Return the convolution alone, ``(N, O, OH, OW)``, in the data's type."""
    top, left, bottom, right = workload.padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
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


def wrong_answer(scheme: Scheme, output: Array, expected: Array) -> str | None:
    """Say by how much a kernel's output is wrong, or None if rounding explains the difference.

    Parameters
    ----------
    scheme : Scheme
        How ``output`` was computed; Winograd rounds more.
    output : array
        As the kernel wrote it, in the scheme's layout. Its padded lanes may hold anything finite.
    expected : array
        ``(N, O, OH, OW)``.
    """
    if not np.isfinite(output).all():
        return "wrong answer: not finite"
    got = scheme.out_layout.unpack(output, expected.shape[1])
    scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64)))) or 1.0
    error = float(np.max(np.abs(got - expected))) / scale
    tolerance = WINOGRAD_TOLERANCE if isinstance(scheme, WinogradScheme) else TOLERANCE
    if error <= tolerance:
        return None
    return f"wrong answer: largest error {error:.2g} of the output's scale"
