"""Maxima and minima that begin with infinities, and wait for nothing but each other.

TVM begins with the largest finite number of the other sign, which is wrong where there is nothing
but infinities; and its schedules know no reduction that begins with anything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad


def begin_with_infinities(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled function in which no extremum begins with a finite number.

    The operand that is new comes first: it is the one that is looked at for being no number, which
    then is done while the last extremum is still on its way.
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
    """Yield what a function keeps maxima or minima of floating-point numbers in, and of which."""
    stores: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
    yield from ((store.buffer, type(store.value)) for store in stores if _is_step(store))


def _is_step(store: Any) -> bool:
    """Whether a store replaces a number by an extremum of it and another."""
    value = store.value
    is_extremum = isinstance(value, tirx.Max | tirx.Min)
    if not is_extremum or not str(value.ty.dtype).startswith(("float", "bfloat")):
        return False
    return any(_is_own(each, store.buffer) for each in (value.a, value.b))


def _is_own(value: Any, buffer: Any) -> bool:
    return isinstance(value, TensorLoad) and value.source.same_as(buffer)


def _beginning(value: Any, kind: type) -> Any | None:
    """Return the infinity in place of the number that TVM begins with; None of all else."""
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
