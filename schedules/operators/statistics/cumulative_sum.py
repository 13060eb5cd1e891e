"""ONNX's CumSum: running sums along one axis."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    part_start,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import ceil_div

NARROW = 64
"""The most columns whose sums stay in registers."""
LANES, LEAST = 16, 128
"""The number of columns that are added together if there are more, and the fewest of a task."""


def lower_cumulative_sum(
    shape: tuple[int, int, int], dtype: str, *, exclusive: bool, reverse: bool
) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` of the sums along the middle axis.

    - `shape`: ``(outer, extent, inner)`` of data and output.
    - `exclusive`: whether a sum excludes its own element.
    - `reverse`: whether sums start from the end.

    ::

        parallel outer
          sums = data[first], or 0
          output[first] = sums
          for the others: sums += data[i], or data[i - 1]; output[i] = sums

    Of many columns, sums are read where they were written::

        parallel outer · part of inner
          output[first] = data[first], or 0
          for the others: for vectors: output[i] = output[i - 1] + data[i], or data[i - 1]
    """
    outer, extent, inner = shape
    first, step = (extent - 1, -1) if reverse else (0, 1)
    parts = max(1, min(ENOUGH_TASKS // outer, inner // LEAST))

    def start(data: Any, at: tuple[Any, ...], width: int) -> Any:
        return splat(tirx.const(0, dtype), width) if exclusive else data[at]

    def added(i: Any) -> tuple[Any, Any, Any]:
        """Return the places of a sum, of the sum before it, and of the element between them."""
        here, before = first + step * (i + 1), first + step * i
        return here, before, before if exclusive else here

    def narrow(data: Any, output: Any) -> None:
        columns = span(0, inner)
        with task_loop(outer, outer * extent * inner) as row:
            sums = T.alloc_buffer((inner,), dtype, layout=None)
            T.buffer_store(sums, start(data, (row, first, columns), inner), [columns])
            T.buffer_store(output, sums[columns], [row, first, columns])
            with T.serial(extent - 1) as i:
                here, _, between = added(i)
                T.buffer_store(sums, sums[columns] + data[row, between, columns], [columns])
                T.buffer_store(output, sums[columns], [row, here, columns])

    def wide(data: Any, output: Any) -> None:
        with task_loop(outer * parts, outer * extent * inner) as task:
            row, part = task // parts, task % parts
            vectors = ceil_div(inner, LANES)
            low, high = (T.Bind(part_start(part + i, vectors, parts)) for i in range(2))

            def columns(vector: Any) -> Any:
                """Return those of a vector; the last ones are computed twice, alike."""
                return span(T.min((low + vector) * LANES, inner - LANES), LANES)

            with T.serial(high - low) as vector:
                at = columns(vector)
                T.buffer_store(output, start(data, (row, first, at), LANES), [row, first, at])
            with T.serial(extent - 1) as i:
                here, before, between = added(i)
                with T.serial(high - low) as vector:
                    at = columns(vector)
                    value = output[row, before, at] + data[row, between, at]
                    T.buffer_store(output, value, [row, here, at])

    body = narrow if inner <= NARROW else wide
    return build_kernel((("data", shape, dtype), ("output", shape, dtype)), body)
