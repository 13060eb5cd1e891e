"""The variables of a planned ``main`` that are the same tensor, and the time it is in use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.ir.expressions import Expr, dtype_of, is_op, known_shape, static_shape
from neocpu.ir.uses import bindings, used_vars
from neocpu.schedules.recurrent.counted_loop import (
    LOOP_BEGIN,
    LOOP_DECIDED,
    LOOP_END,
    LOOP_LIMIT,
    LOOP_STATES,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Loop:
    """Bindings that are repeated: those after ``begin``, up to ``end``."""

    begin: int  # the binding that calls the kernel before the body
    end: int  # the one that calls the kernel at its end
    limit: int  # the largest number of steps
    number: Var  # the allocation that holds the number of the step
    count: Expr | None  # the number of steps
    condition: Expr | None  # it says after each step whether there is another one

    def __contains__(self, step: int) -> bool:
        return self.begin < step <= self.end


@dataclass(slots=True, eq=False, kw_only=True)
class Uses:
    """The variables that are one tensor, and the time that each tensor is in use."""

    names: dict[Var, Expr] = field(default_factory=dict)  # bound to a variable, or a tuple of them
    roots: dict[Var, Var] = field(default_factory=dict)  # the allocation that each is a view of
    first: dict[Var, int] = field(default_factory=dict)  # the first binding that uses an allocation
    last: dict[Var, int] = field(default_factory=dict)  # the last one; the result's is one more
    shared: set[Var] = field(default_factory=set)  # allocations that not only kernels use
    loops: list[Loop] = field(default_factory=list)  # inner ones before those around them
    carried: set[Var] = field(default_factory=set)  # contents last from one step to the next

    def resolve(self, expr: Expr) -> Expr:
        """Return ``expr`` with each variable replaced by the one that it is an alias of."""
        return replace_vars(expr, lambda var: self.names.get(var, var))

    def root(self, expr: Expr) -> Var | None:
        """Return the allocation that ``expr`` is a view of; None if it cannot be placed."""
        root = self.roots.get(expr) if isinstance(expr, Var) else None
        return None if root in self.shared else root

    def touch(self, expr: Expr, step: int) -> None:
        """Note that the resolved ``expr`` uses its tensors at ``step``."""
        for var in used_vars(expr):
            if (root := self.roots.get(var)) is not None:
                self.first.setdefault(root, step)
                self.last[root] = step


def read_uses(main: relax.Function, mod: tvm.IRModule) -> Uses:
    uses = Uses()
    step = 0
    begun: dict[str, tuple[int, Call]] = {}
    for step, binding in enumerate(bindings(main)):
        var, value = binding.var, uses.resolve(binding.value)
        if isinstance(binding, relax.VarBinding) and isinstance(value, Var | relax.Tuple):
            uses.names[var] = value
        elif is_placeable(value):
            uses.roots[var] = var
        elif is_reshape(value) and value.args[0] in uses.roots:
            uses.roots[var] = uses.roots[value.args[0]]
        elif not is_kernel_call(value, mod):
            uses.shared.update(uses.roots[v] for v in used_vars(value) if v in uses.roots)
        elif (name := mark_of(mod[value.op], LOOP_BEGIN)) is not None:
            begun[name] = (step, value)
        elif (name := mark_of(mod[value.op], LOOP_END)) is not None:
            _end_loop(uses, *begun.pop(name), step, value, mod)
        uses.touch(value, step)
    uses.touch(uses.resolve(main.body.body), step + 1)
    for loop in uses.loops:
        _keep_in_loop(uses, loop)
    return uses


def _end_loop(uses: Uses, begin: int, first: Call, end: int, last: Call, mod: tvm.IRModule) -> None:
    """Note a loop: its end writes the states to the places where its begin wrote them."""
    kernel = mod[last.op]
    states = int(mark_of(kernel, LOOP_STATES))
    counted, conditional = (int(mark_of(mod[call.op], LOOP_DECIDED)) for call in (first, last))
    rows = (len(last.args) - 1 - conditional) // 2 - states
    number, *places = first.args[states + counted :]
    condition = last.args[1 + states + rows] if conditional else None
    limit, count = int(mark_of(kernel, LOOP_LIMIT)), first.args[states] if counted else None
    loop = Loop(begin=begin, end=end, limit=limit, number=number, count=count, condition=condition)
    uses.loops.append(loop)
    results = last.args[1 + states + rows + conditional :]
    for place, result in zip(places, results[:states], strict=True):
        uses.roots[result] = place
    uses.carried.update((number, *places, *results[states:]))
    for whole in results[states:]:
        uses.touch(whole, begin)


def _keep_in_loop(uses: Uses, loop: Loop) -> None:
    for root, last in uses.last.items():
        if uses.first[root] <= loop.begin and last in loop:
            uses.last[root] = loop.end


def mark_of(function: Any, name: str) -> Any:
    attributes = function.attrs if isinstance(function, tirx.PrimFunc) else None
    return attributes[name] if attributes is not None and name in attributes else None


def is_placeable(value: Expr) -> bool:
    """Whether ``value`` allocates a tensor with a static shape and a known element type."""
    return (
        is_op(value, "relax.builtin.alloc_tensor")
        and static_shape(value) is not None
        and dtype_of(value) in DTYPES
    )


def is_reshape(value: Expr) -> bool:
    return is_op(value, "relax.reshape") and static_shape(value) is not None


def is_kernel_call(value: Expr, mod: tvm.IRModule) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.op, GlobalVar)
        and isinstance(mod[value.op], tirx.PrimFunc)
    )


def bytes_in(var: Var) -> int:
    shape = known_shape(var)
    return math.prod(shape) * bytes_of(dtype_of(var))


def rebound(binding: Any, var: Var, value: Expr) -> Any:
    """Return a binding of the same kind with another variable or value."""
    if isinstance(binding, relax.VarBinding):
        return relax.VarBinding(var, value)
    return relax.MatchCast(var, value, binding.ty)


def replace_vars(expr: Expr, variable: Callable[[Var], Expr]) -> Expr:
    """Return ``expr`` with its variables replaced, and with fields in place of tuple accesses."""
    if isinstance(expr, Var):
        return variable(expr)
    if isinstance(expr, Call):
        args = [replace_vars(arg, variable) for arg in expr.args]
        return Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([replace_vars(item, variable) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        value = replace_vars(expr.tuple_value, variable)
        known = isinstance(value, relax.Tuple)
        return value.fields[expr.index] if known else relax.TupleGetItem(value, expr.index)
    return expr
