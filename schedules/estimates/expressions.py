"""Queries about TIR expressions and statements, and the values of indices in a loop nest."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from neocpu.foundation.dtypes import DTYPES

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
"""The function that computes each binary expression from ``a`` and ``b``."""

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
"""A function that computes an index from the iteration of each loop (0 if absent), or None if data
decide it."""


class Indices:
    """The values of variables, and functions that compute indices from them: compiled to Python, as
    TVM takes longer for an expression's parts than its computation at several iterations does.
    """

    def __init__(self) -> None:
        self._bound: dict[Var, Any] = {}
        self._readers: dict[Var, Reader] = {}

    def bind(self, variable: Var, expr: Any) -> None:
        # A previous use of the variable may have meant another expression, or a loop.
        if variable in self._readers:
            self._readers.clear()
        self._bound[variable] = expr

    def bound(self, variable: Var) -> Any | None:
        """Return the expression that a variable is bound to; None for the variable of a loop."""
        return self._bound.get(variable)

    def value(self, expr: Any, loops: Mapping[Var, int]) -> Number | None:
        """Return an index, a vector's first, at the iteration of each of `loops`, of other loops
        the first; None if data decide it.
        """
        return self.reader(expr)(loops)

    def offset(self, shape: Any, indices: Any) -> Reader:
        """Return the element of a tensor that is accessed; None if data decide it."""
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
        """Return the function that computes an index, for vectors that of the first element."""
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
    """Return None, the value of an index that data decide."""


def _constant(number: Number) -> Reader:
    return lambda _: number


def _of_loop(variable: Var) -> Reader:
    return lambda loops: loops.get(variable, 0) if loops else 0


# Operations for which LLVM has vector instructions.
PLAIN_CALLS: Final = frozenset(
    f"{room}.{name}"
    for room in ("prim", "tirx")
    for name in (
        "likely",
        "if_then_else",
        "fabs",
        "floor",
        "ceil",
        "trunc",
        "round",
        "nearbyint",
        "fma",
        "reinterpret",
        "shift_left",
        "shift_right",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
        "call_llvm_pure_intrin",
        "call_llvm_intrin",
        "isnan",
        "isfinite",
        "isinf",
        "prefetch",
        "address_of",
        "clz",
        "popcount",
        "copysign",
        "call_extern",  # calls a function of inlined LLVM text
    )
)


# Operations of many cycles that are still vector instructions.
ROOTS: Final = ("tirx.sqrt", "tirx.rsqrt")


def is_library_call(call: Any) -> bool:
    """Return whether the C library computes a call, element by element."""
    name = str(getattr(call.op, "name", ""))
    return name.startswith(("tirx.", "prim.")) and name not in PLAIN_CALLS and name not in ROOTS


def parts(expr: Any) -> tuple[Any, ...]:
    """Return the operands of an expression, without the indices of its loads."""
    if type(expr) in BINARY:
        return (expr.a, expr.b)
    if isinstance(expr, tirx.Select):
        return (expr.condition, expr.true_value, expr.false_value)
    if isinstance(expr, tirx.Cast | tirx.Broadcast):
        return (expr.value,)
    if isinstance(expr, tirx.Ramp):
        return (expr.base,)
    if isinstance(expr, tirx.Not):
        return (expr.a,)
    if isinstance(expr, tirx.Let):
        return (expr.value, expr.body)
    if isinstance(expr, tirx.Shuffle):
        return tuple(expr.vectors)
    if isinstance(expr, Call):
        return tuple(arg for arg in expr.args if not isinstance(arg, str))
    return ()


def dtype_of(expr: Any) -> tuple[str, int]:
    """Return the element type of a value and its number of lanes."""
    element, _, lanes = str(getattr(expr.ty, "dtype", expr.ty)).partition("x")
    return element, int(lanes) if lanes.isdigit() else 1


def bytes_of(dtype: str) -> int:
    """Return the bytes of an element, or of an address if the type is no number."""
    return max(1, DTYPES[dtype].bits // 8) if dtype in DTYPES else 8


def reads(value: Any, buffer: Any) -> bool:
    """Return whether a value depends on an element of a buffer."""
    found = False

    def visit(load: Any) -> None:
        nonlocal found
        found = found or load.source.same_as(buffer)

    tvm_ffi.structural_walk(value, (TensorLoad, visit))
    return found


def bounds(condition: Any) -> list[float]:
    """Return the constants below which a condition keeps its operands."""
    found: list[float] = []

    def visit(each: Any) -> None:
        if isinstance(each.b, tirx.IntImm):
            found.append(float(int(each.b)))

    tvm_ffi.structural_walk(condition, ((tirx.LT, tirx.LE), visit))
    return found


def indexed_extents(body: Any, var: Var) -> list[float]:
    """Return the extents of the dimensions that a loop's variable indexes."""
    found: list[float] = []

    def visit(buffer: Any, indices: Any) -> None:
        for extent, index in zip(buffer.shape, indices, strict=True):
            if index.same_as(var) and isinstance(extent, tirx.IntImm):
                found.append(float(int(extent)))

    tvm_ffi.structural_walk(
        body,
        [
            (TensorLoad, lambda load: visit(load.source, load.indices)),
            (tirx.BufferStore, lambda store: visit(store.buffer, store.indices)),
        ],
    )
    return found


def vectors_within(body: Any) -> list[float]:
    """Return, for each buffer that a statement loads vectors of, the number of its vectors."""
    found: list[float] = []

    def visit(load: Any) -> None:
        lanes = dtype_of(load)[1]
        extents = [int(e) for e in load.source.shape if isinstance(e, tirx.IntImm)]
        if lanes > 1:
            found.append(math.prod(extents) / lanes)

    tvm_ffi.structural_walk(body, (TensorLoad, visit))
    return found
