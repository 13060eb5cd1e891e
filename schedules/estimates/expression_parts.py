"""Queries about TIR expressions and statements, for `work_count`."""

from __future__ import annotations

import math
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from neocpu.foundation.dtypes import DTYPES
from neocpu.schedules.estimates.index_values import BINARY

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
