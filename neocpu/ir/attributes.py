"""Attributes of Relax calls as Python numbers: pads, strides, axes, permutations."""

from __future__ import annotations

from typing import Any

from tvm.ir import Call, Var

from neocpu.ir.expressions import static_shape


def integers_of(values: Any) -> list[int]:
    return [int(value) for value in values]


def pair_of(values: Any) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def four_of(values: Any) -> tuple[int, int, int, int]:
    """Return padding as four numbers, repeating one number or two."""
    numbers = [int(v) for v in values]
    top, left, bottom, right = numbers if len(numbers) == 4 else (numbers * 4)[:4]
    return top, left, bottom, right


def permutation_of(call: Call) -> tuple[int, ...]:
    """Return the axes of a ``permute_dims``, none below zero."""
    rank, axes = int(call.ty.ndim), call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in axes)


def reduced_axes(call: Call) -> list[int] | None:
    """Return the axes of a reduction, rising and none below zero; None if it does not name any.

    A reduction that names no axes is over all of them.
    """
    shape, axes = static_shape(call.args[0]), call.attrs.axis
    if shape is None or axes is None:
        return None
    return sorted(int(axis) % len(shape) for axis in axes)


def channel_slice(call: Call) -> tuple[int, int] | None:
    """Return the first channel of a slice of consecutive channels, and the one after its last."""
    source, shape = static_shape(call.args[0]), static_shape(call)
    if not isinstance(call.args[0], Var) or source is None or shape is None or len(source) != 4:
        return None
    if len(call.args) > 4 and any(int(step.value) != 1 for step in call.args[4].fields):
        return None
    if [int(axis.value) for axis in call.args[1].fields] != [1]:
        return None
    first = int(call.args[2].fields[0].value)
    first = max(first + source[1], 0) if first < 0 else first
    return first, first + shape[1]
