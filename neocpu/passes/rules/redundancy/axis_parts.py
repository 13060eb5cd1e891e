"""Parts of a tensor along an axis: what slices, splits and concatenations have in common."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.relax_utils import Expr, Rewrite, is_op, shape_values, static_shape


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Consecutive elements of ``source`` along ``axis``: from ``first`` on, up to ``end``."""

    source: Expr
    axis: int
    first: int
    end: int


def part_of(expr: Expr, rewrite: Rewrite) -> Part | None:
    """Return what a slice along one axis, or an item of a split, is of its source; else None."""
    if isinstance(expr, relax.TupleGetItem):
        return _item(expr, rewrite)
    return _slice(expr) if is_op(expr, "relax.strided_slice") else None


def slice_of(part: Part) -> Expr:
    """Return a slice that is the part; the source, if that is all of it."""
    shape = static_shape(part.source)
    assert shape is not None
    if (part.first, part.end) == (0, shape[part.axis]):
        return part.source
    return relax.op.strided_slice(part.source, [part.axis], [part.first], [part.end])


def inputs_of(concat: Expr, rewrite: Rewrite) -> tuple[int, list[Expr]] | None:
    """Return a concatenation's axis and inputs, of static shapes; None for anything else."""
    if not is_op(concat, "relax.concat"):
        return None
    inputs, shape = rewrite.definition(concat.args[0]), static_shape(concat)
    if not isinstance(inputs, relax.Tuple) or shape is None:
        return None
    fields = list(inputs.fields)
    if any(static_shape(field) is None for field in fields):
        return None
    return int(concat.attrs.axis or 0) % len(shape), fields


def extent_of(expr: Expr, axis: int) -> int:
    """Return an extent of a tensor of static shape."""
    shape = static_shape(expr)
    assert shape is not None
    return shape[axis]


def region_of(call: Expr) -> tuple[tuple[int, int], ...] | None:
    """Return along each axis where a slice of step 1 begins and ends; None for anything else."""
    if not is_op(call, "relax.strided_slice") or not _steps_by_one(call):
        return None
    source, shape = static_shape(call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    axes = [int(axis.value) % len(shape) for axis in call.args[1].fields]
    if len(set(axes)) < len(axes):
        return None
    firsts = [0] * len(shape)
    for axis, begin in zip(axes, call.args[2].fields, strict=True):
        first = int(begin.value)
        firsts[axis] = min(max(first + source[axis] if first < 0 else first, 0), source[axis])
    return tuple((first, first + extent) for first, extent in zip(firsts, shape, strict=True))


def _slice(call: Call) -> Part | None:
    region, source = region_of(call), static_shape(call.args[0])
    if region is None or source is None:
        return None
    cut = [axis for axis, extent in enumerate(source) if region[axis] != (0, extent)]
    if len(cut) != 1:
        return None
    (axis,) = cut
    return Part(call.args[0], axis, *region[axis])


def _steps_by_one(call: Call) -> bool:
    steps = call.args[4].fields if len(call.args) > 4 else ()
    return all(isinstance(step, tvm.tirx.IntImm) and step.value == 1 for step in steps)


def _item(expr: relax.TupleGetItem, rewrite: Rewrite) -> Part | None:
    split = rewrite.definition(expr.tuple_value)
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
