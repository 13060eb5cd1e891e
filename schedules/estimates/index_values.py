"""Where the accesses of a loop nest go, found by computing their indices at a few iterations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import tirx
from tvm.ir import Call, Var

Number = int | float

BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Div: lambda a, b: a / b if isinstance(a, float) else a // b,
    tirx.Mod: operator.mod,
    tirx.Min: min,
    tirx.Max: max,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.And: lambda a, b: bool(a) and bool(b),
    tirx.Or: lambda a, b: bool(a) or bool(b),
}
"""What computes each expression of two operands, ``a`` and ``b``."""

_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "prim.if_then_else": lambda condition, then, other: then if condition else other,
    "prim.likely": lambda condition: condition,
    "tirx.floor": math.floor,
    "tirx.ceil": math.ceil,
    "tirx.round": round,
    "tirx.trunc": math.trunc,
    "tirx.shift_right": operator.rshift,
    "tirx.shift_left": operator.lshift,
    "prim.shift_right": operator.rshift,
    "prim.shift_left": operator.lshift,
}


class Indices:
    """The numbers that variables stand for.

    Attributes
    ----------
    bound : dict of Var to expression
        Names of expressions.
    """

    def __init__(self) -> None:
        self.bound: dict[Var, Any] = {}

    def value(self, expr: Any, loops: Mapping[Var, int]) -> Number | None:
        """Return an index at an iteration; None if data decide it.

        Vectors are where they begin.

        Parameters
        ----------
        loops : mapping of Var to int
            Which iteration each loop is in; the first one where nothing is said.
        """
        if (compute := BINARY.get(type(expr))) is not None:
            return self._computed(compute, (expr.a, expr.b), loops)
        if isinstance(expr, tirx.IntImm):
            return int(expr)
        if isinstance(expr, tirx.FloatImm):
            return float(expr.value)
        if isinstance(expr, Var):
            bound = self.bound.get(expr)
            return loops.get(expr, 0) if bound is None else self.value(bound, loops)
        if isinstance(expr, tirx.Cast):
            whole = str(expr.ty).startswith(("int", "uint"))
            return self._computed(int if whole else float, (expr.value,), loops)
        if isinstance(expr, tirx.Broadcast):
            return self.value(expr.value, loops)
        if isinstance(expr, tirx.Ramp):
            return self.value(expr.base, loops)
        if isinstance(expr, tirx.Select):
            return self.value(expr.true_value, loops)
        if isinstance(expr, Call):
            compute = _CALLS.get(str(getattr(expr.op, "name", "")))
            return None if compute is None else self._computed(compute, expr.args, loops)
        return None

    def _computed(
        self, compute: Callable[..., Any], operands: Any, loops: Mapping[Var, int]
    ) -> Number | None:
        values = [self.value(operand, loops) for operand in operands]
        if any(value is None for value in values):
            return None
        try:
            result: Number = compute(*values)
        except ArithmeticError:
            return None
        return result

    def offset(self, shape: Any, indices: Any, loops: Mapping[Var, int]) -> Number | None:
        """Return which element of a tensor is accessed; None if data decide it."""
        offset: Number = 0
        for extent, index in zip(shape, indices, strict=True):
            at = self.value(index, loops)
            if at is None or not isinstance(extent, tirx.IntImm):
                return None
            offset = offset * int(extent) + at
        return offset
