"""Sums that stay in a register while a loop computes their terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import span


def emit_sum(first: Any, width: int, start: int, stop: int, term: Callable[[Any], Any]) -> Any:
    """Emit a loop, and return ``first`` and all its terms added up, in ``width`` lanes.

    ::

        acc[width] = first
        for i in range(start, stop): acc += term(i)
    """
    acc = T.alloc_buffer((width,), str(first.ty.dtype).partition("x")[0], layout=None)
    every = span(0, width)
    T.buffer_store(acc, first, [every])
    with T.serial(start, stop) as i:
        T.buffer_store(acc, acc[every] + term(i), [every])
    return T.Bind(acc[every])
