"""Parts and single steps of a tensor along an axis, as in slices, splits and concatenations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import Call

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op, known_shape, shape_values, static_shape


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Consecutive elements of ``source`` along ``axis``, from ``first`` to before ``end``."""

    source: Expr
    axis: int
    first: int
    end: int


def part_of(expr: Expr, definition: Callable[[Expr], Expr]) -> Part | None:
    """Return the part that a slice along one axis, or an item of a split, takes; else None."""
    if isinstance(expr, relax.TupleGetItem):
        return _item(expr, definition)
    return _slice(expr) if is_op(expr, "relax.strided_slice") else None


def slice_of(part: Part) -> Expr:
    """Return the slice that takes the part; the source if the part is all of it."""
    if (part.first, part.end) == (0, extent_of(part.source, part.axis)):
        return part.source
    return relax.op.strided_slice(part.source, [part.axis], [part.first], [part.end])


def inputs_of(concat: Expr, definition: Callable[[Expr], Expr]) -> tuple[int, list[Expr]] | None:
    """Return a concatenation's axis and inputs, of static shapes; None for anything else."""
    if not is_op(concat, "relax.concat"):
        return None
    inputs, shape = definition(concat.args[0]), static_shape(concat)
    if not isinstance(inputs, relax.Tuple) or shape is None:
        return None
    if any(static_shape(field) is None for field in inputs.fields):
        return None
    return int(concat.attrs.axis or 0) % len(shape), [*inputs.fields]


def extent_of(expr: Expr, axis: int) -> int:
    return known_shape(expr)[axis]


def ranges_of(call: Expr) -> tuple[range, ...] | None:
    """Return the elements that a slice takes along each axis; None if it runs backwards."""
    source, shape = static_shape(call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    axes, *numbers = ([int(number.value) for number in arg.fields] for arg in call.args[1:])
    steps = numbers[2] if len(numbers) > 2 else [1] * len(axes)
    if min(steps, default=1) < 1:
        return None
    taken = [range(extent) for extent in source]
    for axis, first, end, step in zip(axes, *numbers[:2], steps, strict=True):
        taken[axis] = taken[axis][first:end:step]
    return tuple(taken) if tuple(map(len, taken)) == shape else None


def region_of(call: Expr) -> tuple[tuple[int, int], ...] | None:
    """Return the begin and end of a slice with step 1 along each axis; None for anything else."""
    taken = ranges_of(call) if is_op(call, "relax.strided_slice") else None
    if taken is None or any(each.step != 1 for each in taken):
        return None
    return tuple((each.start, each.stop) for each in taken)


def cut_to(data: Expr, taken: Sequence[range]) -> Expr:
    """Return the slice that takes these elements along each axis; the data if they are all."""
    axes = [axis for axis, extent in enumerate(known_shape(data)) if taken[axis] != range(extent)]
    if not axes:
        return data
    bounds = ((taken[axis].start, taken[axis].stop, taken[axis].step) for axis in axes)
    firsts, ends, steps = zip(*bounds, strict=True)
    return relax.op.strided_slice(data, axes, firsts, ends, steps)


def _slice(call: Call) -> Part | None:
    region, source = region_of(call), static_shape(call.args[0])
    if region is None or source is None:
        return None
    cut = [axis for axis, extent in enumerate(source) if region[axis] != (0, extent)]
    return Part(call.args[0], cut[0], *region[cut[0]]) if len(cut) == 1 else None


def _item(expr: relax.TupleGetItem, definition: Callable[[Expr], Expr]) -> Part | None:
    split = definition(expr.tuple_value)
    if not is_op(split, "relax.split") or static_shape(split.args[0]) is None:
        return None
    shapes = [shape_values(each.shape) for each in split.ty.fields]
    axis = int(split.attrs.axis)
    extents = [shape[axis] for shape in shapes if shape is not None]
    if len(extents) < len(shapes):
        return None
    first = sum(extents[: expr.index])
    rank = len(split.ty.fields[expr.index].shape.values)
    return Part(split.args[0], axis % rank, first, first + extents[expr.index])


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The elements at one index of ``source`` along an axis, with or without that axis."""

    source: Expr
    axis: int
    index: int


def step_of(value: Expr, definition: Callable[[Expr], Expr]) -> Step | None:
    """Return a value as a step of a tensor; None if it is none."""
    if is_op(value, "relax.take"):
        index, shape = constant_value(value.args[1]), static_shape(value.args[0])
        if index is None or index.size != 1 or value.attrs.axis is None or shape is None:
            return None
        axis, number = int(value.attrs.axis) % len(shape), int(index.item())
        return Step(value.args[0], axis, number) if 0 <= number < shape[axis] else None
    part = part_of(value, definition)
    if part is None or part.end - part.first != 1:
        return None
    return Step(part.source, part.axis, part.first)
