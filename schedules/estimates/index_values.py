"""Where the accesses of a loop nest go, found by computing their indices at a few iterations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

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


Reader: TypeAlias = Callable[[Mapping[Var, int]], "Number | None"]
"""Computes an index from which iteration each loop is in, the first where nothing is said; None if
data decide it."""


class Indices:
    """The numbers that variables stand for.

    Indices are looked at where they are accessed and computed at several iterations, so that each
    becomes a function of Python's first: to ask TVM for the parts of an expression takes longer
    than to compute it.
    """

    def __init__(self) -> None:
        self._bound: dict[Var, Any] = {}
        self._readers: dict[Var, Reader] = {}

    def bind(self, variable: Var, expr: Any) -> None:
        """Name an expression."""
        # What was read before might have meant another, or a loop.
        if variable in self._readers:
            self._readers.clear()
        self._bound[variable] = expr

    def bound(self, variable: Var) -> Any | None:
        """Return the expression that a variable is the name of; None if it is a loop's."""
        return self._bound.get(variable)

    def value(self, expr: Any, loops: Mapping[Var, int]) -> Number | None:
        """Return an index at an iteration; None if data decide it.

        Vectors are where they begin.

        Parameters
        ----------
        loops : mapping of Var to int
            Which iteration each loop is in; the first one where nothing is said.
        """
        return self.reader(expr)(loops)

    def offset(self, shape: Any, indices: Any) -> Reader:
        """Return which element of a tensor is accessed; None if data decide it."""
        if not all(isinstance(extent, tirx.IntImm) for extent in shape):
            return _unknown
        axes = [
            (int(extent), self.reader(index)) for extent, index in zip(shape, indices, strict=True)
        ]

        def read(loops: Mapping[Var, int]) -> Number | None:
            offset: Number = 0
            for extent, index in axes:
                at = index(loops)
                if at is None:
                    return None
                offset = offset * extent + at
            return offset

        return read

    def reader(self, expr: Any) -> Reader:
        """Return what computes an index; of vectors, where they begin."""
        if (compute := BINARY.get(type(expr))) is not None:
            return self._computed(compute, (expr.a, expr.b))
        if isinstance(expr, tirx.IntImm):
            return _constant(int(expr))
        if isinstance(expr, tirx.FloatImm):
            return _constant(float(expr.value))
        if isinstance(expr, Var):
            if (read := self._readers.get(expr)) is None:
                bound = self._bound.get(expr)
                read = _of_loop(expr) if bound is None else self.reader(bound)
                self._readers[expr] = read
            return read
        if isinstance(expr, tirx.Cast):
            whole = str(expr.ty).startswith(("int", "uint"))
            return self._computed(int if whole else float, (expr.value,))
        if isinstance(expr, tirx.Broadcast):
            return self.reader(expr.value)
        if isinstance(expr, tirx.Ramp):
            return self.reader(expr.base)
        if isinstance(expr, tirx.Select):
            return self.reader(expr.true_value)
        if isinstance(expr, Call):
            compute = _CALLS.get(str(getattr(expr.op, "name", "")))
            return _unknown if compute is None else self._computed(compute, expr.args)
        return _unknown

    def _computed(self, compute: Callable[..., Any], operands: Any) -> Reader:
        readers = [self.reader(operand) for operand in operands]

        def read(loops: Mapping[Var, int]) -> Number | None:
            values = [reader(loops) for reader in readers]
            if None in values:
                return None
            try:
                result: Number = compute(*values)
            except ArithmeticError:
                return None
            return result

        return read


def _unknown(loops: Mapping[Var, int]) -> None:
    """Return what data decide."""


def _constant(number: Number) -> Reader:
    return lambda _: number


def _of_loop(variable: Var) -> Reader:
    return lambda loops: loops.get(variable, 0) if loops else 0
