"""Fused epilogues and prologues: elementwise steps before a store or after a load.

An epilogue's steps make one TE stage over the output's physical shape, so that a schedule inlines
the whole epilogue into the write-back of the accumulators and the result is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.schedules.tir.bfloat16 import bits_of, rounded, widened
from neocpu.schedules.tir.output_tiles import Placed
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.steps import (
    NO_OPERAND,
    PER_CHANNEL,
    PER_IMAGE_CHANNEL,
    STEP_KINDS,
    TENSOR,
)
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp


def operand_shape(
    op: EpilogueOp, workload: Conv2dWorkload, layout: DataLayout
) -> tuple[int, ...] | None:
    """Return the physical shape of the operand of ``op`` for an output in ``layout``, or None."""
    if op.operand == PER_CHANNEL:
        return layout.shape((1, workload.out_channels, 1, 1))
    return layout.shape(workload.output_shape) if op.operand == TENSOR else None


def epilogue_operands(
    workload: Conv2dWorkload, layout: DataLayout
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return the physical ``(shape, dtype)`` of every operand of the epilogue, in order."""
    shapes = (operand_shape(op, workload, layout) for op in workload.epilogue)
    found = zip(shapes, workload.epilogue_types, strict=True)
    return tuple((shape, dtype) for shape, dtype in found if shape is not None)


def prologue_operands(
    workload: Conv2dWorkload, layout: DataLayout
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return the physical ``(shape, dtype)`` of the prologue's operands for an input ``layout``."""
    images = {PER_CHANNEL: 1, PER_IMAGE_CHANNEL: workload.batch}
    return tuple(
        (layout.shape((images[op.operand], workload.in_channels, 1, 1)), workload.numerics.data)
        for op in workload.prologue
        if op.operand != NO_OPERAND
    )


def convolution_arguments(
    workload: Conv2dWorkload, scheme: Scheme, weights: tuple[int, ...], packed: str | None = None
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return the physical ``(shape, dtype)`` of a convolution's arguments, in templates' order.

    The order is: data, packed ``weights`` (their shape, and their type if it differs), operands of
    the prologue, of the epilogue, and output. If the image is padded with a zero point, that
    follows the weights, once for each channel of a block.
    """
    border = ((scheme.in_layout.block,), workload.numerics.data)
    return (
        (scheme.in_layout.shape(workload.input_shape), workload.numerics.data),
        (weights, packed or workload.numerics.weights),
        *((border,) if workload.pads_with_zero_point else ()),
        *prologue_operands(workload, scheme.in_layout),
        *epilogue_operands(workload, scheme.out_layout),
        (scheme.out_layout.shape(workload.output_shape), workload.numerics.output),
    )


def apply_epilogue(
    conv: te.Tensor, workload: Conv2dWorkload, layout: DataLayout, placed: Placed | None = None
) -> tuple[te.Tensor, list[te.Tensor]]:
    """Append the workload's epilogue to a convolution as one TE stage named ``epilogue``.

    The stage exists even for an empty epilogue, because it stores the accumulators. The sum
    ``conv`` may be larger than the result, which is of ``layout.shape(workload.output_shape)``:
    register tiles that overhang the output compute values that the epilogue never reads. The
    result comes with a placeholder per operand, in the order of `epilogue_operands`. `placed`:
    the stage, if it has another shape than the output.
    """
    operands: list[te.Tensor] = []
    readers: list[Callable[..., Any] | None] = []
    types = workload.epilogue_types
    for number, op in enumerate(workload.epilogue):
        shape = operand_shape(op, workload, layout)
        if shape is None:
            readers.append(None)
            continue
        tensor = te.placeholder(shape, types[number], name=f"operand{number}")
        operands.append(tensor)
        if op.operand == PER_CHANNEL:
            readers.append(lambda *i, t=tensor: t(*(0, i[1], 0, 0, *i[4:])))
        else:
            readers.append(lambda *i, t=tensor: t(*i))

    def element(*index: Any) -> Any:
        place = index if placed is None else placed.place(*index)
        value = epilogue_value(conv(*index), workload, readers, place)
        return as_stored(value, workload, layout.block, place)

    shape = layout.shape(workload.output_shape) if placed is None else placed.shape
    return te.compute(shape, element, name="epilogue"), operands


def epilogue_value(
    value: Any,
    workload: Conv2dWorkload,
    readers: Sequence[Callable[..., Any] | None],
    index: Sequence[Any],
) -> Any:
    """Return one element of the convolution's sum, ``value``, with the epilogue applied.

    - `readers`: for each step, a function from an index to its operand's element; None without one.
    - `index`: the element's physical index in the output.
    """
    return apply_steps(value, workload.epilogue, readers, index)


def as_stored(value: Any, workload: Conv2dWorkload, block: int, index: Sequence[Any]) -> Any:
    """Return ``value`` as the output stores it: in its type, with zeros in padded channels."""
    return in_type(zero_beyond(value, workload, block, index), workload.numerics.output)


def zero_beyond(value: Any, workload: Conv2dWorkload, block: int, index: Sequence[Any]) -> Any:
    """Return ``value``, or zero after the last channel if floats are stored.

    Weights are zero there, but an infinite or NaN pixel would give NaN, which the next convolution
    would add to all its channels.

    - `block`: the channel block of the output.
    - `index`: the physical index, as for `epilogue_value`.
    """
    if workload.out_channels % block and DTYPES[workload.numerics.output].is_float:
        _, chunk, _, _, lane = index
        zero = tirx.const(0.0, value.ty.dtype)
        return tirx.Select(chunk * block + lane < workload.out_channels, value, zero)
    return value


def in_type(value: Any, dtype: str) -> Any:
    """Return ``value`` in a type that buffers hold: for bfloat16, the bits."""
    return rounded(value) if dtype == BFLOAT16 else value.astype(dtype)


def apply_steps(
    value: Any,
    steps: Sequence[EpilogueOp],
    readers: Sequence[Callable[..., Any] | None],
    index: Sequence[Any],
) -> Any:
    """Return ``value``, the element at ``index``, with ``steps`` applied; see `epilogue_value`."""
    for op, reader in zip(steps, readers, strict=True):
        operand: Any = reader(*index) if reader else None
        if op.operand == TENSOR and operand.ty.dtype != value.ty.dtype:
            operand = operand.astype(value.ty.dtype)
        value = STEP_KINDS[op.kind].emit(value, operand, *op.args)
    return value


def _tensor_reader(buffer: Any) -> Callable[..., Any]:
    bits = bits_of(buffer)
    return (lambda *index: bits[index]) if bits is buffer else (lambda *index: widened(bits[index]))


def buffer_readers(
    steps: Sequence[EpilogueOp], operands: Sequence[Any]
) -> list[Callable[..., Any] | None]:
    """Return readers for `apply_steps` of the buffers of a kernel in NCHW[x]c, in order."""
    rest = iter(operands)
    readers: list[Callable[..., Any] | None] = []
    for op in steps:
        if op.operand == NO_OPERAND:
            readers.append(None)
            continue
        buffer = next(rest)
        if op.operand == PER_CHANNEL:
            readers.append(lambda n, c, h, w, o, b=buffer: b[0, c, 0, 0, o])
        elif op.operand == PER_IMAGE_CHANNEL:
            readers.append(lambda n, c, h, w, o, b=buffer: b[n, c, 0, 0, o])
        else:
            readers.append(_tensor_reader(buffer))
    return readers
