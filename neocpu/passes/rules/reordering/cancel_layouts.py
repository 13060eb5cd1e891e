"""Let transposes and reshapes that undo each other vanish, whatever elementwise lies between.

``transpose_back(f(transpose(x)))`` is ``f(x)``, and what ``f`` reads besides is transposed back: a
constant while compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tvm.ir import Call, Var

from neocpu.passes.rules.elementwise import ELEMENTWISE
from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import (
    Array,
    Expr,
    Rewrite,
    constant_value,
    is_op,
    is_tensor,
    make_const,
    op_name,
    permutation_of,
    static_shape,
    with_rank,
)

_MAX_DEPTH = 16
"""Elementwise operators in a row."""


class _Undoing:
    """One transpose or reshape, moved in front of what it reads until it meets its opposite.

    Attributes
    ----------
    cancelled : int
        Opposites that it met, of which nothing else reads the result.
    added : int
        How many of its kind it left in front of others.
    """

    def __init__(self, call: Call, rewrite: Rewrite) -> None:
        self._call = call
        self._rewrite = rewrite
        self._shape = static_shape(call.args[0])
        self.cancelled = self.added = 0

    def undone(self, value: Expr) -> Expr | None:
        """Return the opposite's data if ``value`` is the result of one."""
        made = self._rewrite.definition(value)
        if not is_op(made, str(op_name(self._call))):
            return None
        if is_op(made, "relax.permute_dims"):
            first, second = permutation_of(made), permutation_of(self._call)
            opposite = all(first[axis] == place for place, axis in enumerate(second))
        else:
            opposite = static_shape(made.args[0]) == static_shape(self._call)
        return made.args[0] if opposite else None

    def plan(self, value: Expr, depth: int = _MAX_DEPTH) -> Callable[[], Expr] | None:
        """Return what makes ``value`` as it is after the move; None if it cannot move there."""
        constant = constant_value(value)
        if constant is not None:
            moved = self._constant(constant)
            return None if moved is None else lambda: make_const(moved)
        if (data := self.undone(value)) is not None:
            self.cancelled += self._rewrite.sole_definition(value) is not None
            return lambda: data
        made = self._rewrite.sole_definition(value)
        if depth and op_name(made) in ELEMENTWISE and static_shape(made) == self._shape:
            assert made is not None
            plans = [self.plan(arg, depth - 1) if is_tensor(arg) else arg for arg in made.args]
            if any(plan is None for plan in plans):
                return None
            return lambda: self._moved(made, plans)
        if not isinstance(value, Var) or static_shape(value) != self._shape:
            return None
        self.added += 1
        args = [value, *self._call.args[1:]]
        return lambda: self._rewrite.emit(Call(self._call.op, args, self._call.attrs))

    def _moved(self, made: Call, plans: list[Expr]) -> Expr:
        args = [plan() if callable(plan) else plan for plan in plans]
        return self._rewrite.emit(Call(made.op, args, made.attrs, made.ty_args))

    def _constant(self, constant: Array) -> Array | None:
        if constant.size == 1:
            return constant.reshape(())
        if is_op(self._call, "relax.permute_dims"):
            axes = permutation_of(self._call)
            return with_rank(constant, len(axes)).transpose(axes)
        shape = static_shape(self._call)
        return constant.reshape(shape) if constant.shape == self._shape else None


def _cancel(expr: Expr, rewrite: Rewrite) -> Expr | None:
    inner = rewrite.sole_definition(expr.args[0])
    if op_name(inner) not in ELEMENTWISE or static_shape(expr) is None:
        return None
    undoing = _Undoing(expr, rewrite)
    plan = undoing.plan(expr.args[0])
    return plan() if plan is not None and undoing.added <= undoing.cancelled else None


CANCEL_LAYOUTS: Final = LocalRule(
    "cancel-layouts",
    Kind.REORDERING,
    "Transposes and reshapes move past elementwise operators where they then undo each other.",
    operators=("relax.permute_dims", "relax.reshape"),
    apply=_cancel,
)
