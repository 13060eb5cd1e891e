"""Reductions: begun with infinities, and combined half by half."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.sym import detect_linear_equation

FEWEST, MOST = 4, 64
"""The numbers of partial results that are combined in this way."""


@tirx.transform.prim_func_pass(opt_level=0, name="JoinByHalves")
class JoinByHalves:
    """A pass that vectorises loops which combine floating-point partial results one by one.

    A reduction along contiguous memory has a vector of partial results. Combined one by one, each
    waits for the one before it: sixteen additions take sixty cycles. Half by half, they wait for
    four.
    """

    def transform_function(self, func: tirx.PrimFunc, mod: Any, ctx: Any) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(func.body, (tirx.For, _joined))
        return func if body.same_as(func.body) else func.with_body(body)


def _joined(loop: Any) -> Any:
    store = loop.body
    count = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 0
    if loop.kind != tirx.ForKind.SERIAL or not FEWEST <= count <= MOST:
        return loop
    if not isinstance(store, tirx.BufferStore) or len(store.indices) != 1:
        return loop
    value = store.value
    if not isinstance(value, tirx.Add | tirx.Max | tirx.Min):
        return loop
    if not str(value.ty.dtype).startswith("float") or _uses(store.indices[0], loop.loop_var):
        return loop
    kind, first = type(value), loop.min
    for own, part in ((value.a, value.b), (value.b, value.a)):
        if _is_of(own, store) and isinstance(part, TensorLoad):
            base = _start(part, loop.loop_var, first)
            if base is not None and not part.source.same_as(store.buffer):
                total = _total(kind, part.source, base, count)
                operands = (own, total) if own.same_as(value.a) else (total, own)
                return tirx.BufferStore(store.buffer, kind(*operands), store.indices)
    return loop


def _is_of(value: Any, store: Any) -> bool:
    return (
        isinstance(value, TensorLoad)
        and value.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(value.indices[0], store.indices[0])
    )


def _start(part: Any, var: Var, first: Any) -> Any | None:
    linear = detect_linear_equation(part.indices[0], [var]) if len(part.indices) == 1 else None
    if not linear or not isinstance(linear[0], tirx.IntImm) or int(linear[0]) != 1:
        return None
    return linear[1] + first


def _uses(expr: Any, var: Var) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (Var, lambda each: found.append(each.same_as(var))))
    return any(found)


def _total(kind: Any, buffer: Any, base: Any, count: int) -> Any:
    half = count // 2

    def load(start: int, width: int) -> Any:
        at = base + start
        return tirx.BufferLoad(buffer, [tirx.Ramp(at, 1, width) if width > 1 else at])

    rest = [load(count - 1, 1)] if count % 2 else []
    return _halved(kind, kind(load(0, half), load(half, half)), half, rest)


def _halved(kind: Any, vector: Any, lanes: int, rest: list[Any]) -> Any:
    if lanes == 1:
        return _chained(kind, [vector, *rest])
    name, half = Var("t", vector.ty), lanes // 2
    left, right = (tirx.Shuffle([name], list(range(start, start + half))) for start in (0, half))
    more = [tirx.Shuffle([name], [lanes - 1])] if lanes % 2 else []
    return tirx.Let(name, vector, _halved(kind, kind(left, right), half, [*rest, *more]))


def _chained(kind: Any, values: list[Any]) -> Any:
    first, *others = values
    for each in others:
        first = kind(each, first)
    return first


def begin_with_infinities(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled function in which no extremum starts from a finite number.

    TVM starts from the largest finite number of the opposite sign, which is wrong if all elements
    are infinite; and its schedules accept no reduction with another start.

    The new operand comes first: it is the one that is tested for NaN, and this test can then run
    before the last extremum is complete.
    """
    found = list(_accumulators(func))
    if not found:
        return func

    def begin(store: Any) -> Any:
        value = store.value
        if _is_step(store):
            first = value.b if _is_own(value.a, store.buffer) else value.a
            last = value.a if first.same_as(value.b) else value.b
            return tirx.BufferStore(store.buffer, type(value)(first, last), store.indices)
        kinds = {kind for buffer, kind in found if store.buffer.same_as(buffer)}
        worst = [_beginning(value, kind) for kind in kinds]
        value = next((each for each in worst if each is not None), None)
        return store if value is None else tirx.BufferStore(store.buffer, value, store.indices)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, begin)))


def _accumulators(func: tirx.PrimFunc) -> Iterator[tuple[Any, type]]:
    stores: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
    yield from ((store.buffer, type(store.value)) for store in stores if _is_step(store))


def _is_step(store: Any) -> bool:
    value = store.value
    is_extremum = isinstance(value, tirx.Max | tirx.Min)
    if not is_extremum or not str(value.ty.dtype).startswith(("float", "bfloat")):
        return False
    return any(_is_own(each, store.buffer) for each in (value.a, value.b))


def _is_own(value: Any, buffer: Any) -> bool:
    return isinstance(value, TensorLoad) and value.source.same_as(buffer)


def _beginning(value: Any, kind: type) -> Any | None:
    lanes = value.lanes if isinstance(value, tirx.Broadcast) else None
    number = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(number, tirx.FloatImm):
        return None
    dtype = number.ty.dtype
    finite = tirx.min_value(dtype) if kind is tirx.Max else tirx.max_value(dtype)
    if float(number) != float(finite):
        return None
    worst = tirx.const(-math.inf if kind is tirx.Max else math.inf, dtype)
    return worst if lanes is None else tirx.Broadcast(worst, lanes)
