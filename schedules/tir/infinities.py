"""Maxima and minima that start from infinities and depend only on each other.

TVM starts from the largest finite number of the opposite sign, which is wrong if all elements are
infinite; and its schedules accept no reduction with another start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad


def begin_with_infinities(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled function in which no extremum starts from a finite number.

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
    """Return whether a store replaces a number by an extremum of it and another number."""
    value = store.value
    is_extremum = isinstance(value, tirx.Max | tirx.Min)
    if not is_extremum or not str(value.ty.dtype).startswith(("float", "bfloat")):
        return False
    return any(_is_own(each, store.buffer) for each in (value.a, value.b))


def _is_own(value: Any, buffer: Any) -> bool:
    return isinstance(value, TensorLoad) and value.source.same_as(buffer)


def _beginning(value: Any, kind: type) -> Any | None:
    """Return the infinity to use instead of TVM's starting number; None for other values."""
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
