"""Single steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neocpu.graph.redundancy.axis_parts import part_of
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op, static_shape


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
