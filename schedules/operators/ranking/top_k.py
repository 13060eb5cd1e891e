"""ONNX's TopK: the k largest or smallest elements along an axis, in order, and their indices."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import emit_sort, entry, index_of, words
from neocpu.schedules.tir.builder import build_kernel, task_loop


def lower_top_k(
    shape: tuple[int, int, int],
    k: int,
    *,
    largest: bool,
    counted: bool = False,
    dtype: str = "float32",
) -> Any:
    """Scheduled ``PrimFunc(data, [count,] values, indices)``: the top ``k`` along the middle axis.

    ``data`` is of ``dtype``, ``(outer, extent, inner)``; ``values`` and ``indices`` (int64) are
    ``(outer, k, inner)``. Equal elements come in the order of their indices. ``count`` is ``(1,)``
    int64: only so many elements along the axis count then, and what there is less than ``k`` of is
    zeros.

    ::

        parallel outer · inner
          for each element: (sortable value, index)
          radix sort, 8 bits of the value at a time, of 64 bits in two parts
          for k: value and index
    """
    outer, extent, inner = shape
    assert 0 < k <= extent, (shape, k)
    result = (outer, k, inner)
    parameters = (
        ("data", shape, dtype),
        *([("count", (1,), "int64")] if counted else []),
        ("values", result, dtype),
        ("indices", result, "int64"),
    )

    def body(data: Any, *others: Any) -> None:
        *count, values, indices = others
        number = clipped(count[0], extent) if counted else extent
        best = T.Bind(T.min(number, k)) if counted else k
        with task_loop(outer * inner, outer * extent * inner) as task:
            row, column = task // inner, task % inner
            entries = T.alloc_buffer((2 * extent,), "uint64", layout=None)
            with T.serial(number) as i:
                T.buffer_store(entries, entry(data[row, i, column], i, falling=largest), [i])
            start = emit_sort(entries, extent, number)
            for word in range(1, words(dtype)):
                with T.serial(number) as i:
                    index = T.Bind(index_of(entries[start + i]))
                    score = data[row, index, column]
                    upper = entry(score, index, falling=largest, word=word)
                    T.buffer_store(entries, upper, [i])
                start = emit_sort(entries, extent, number)
            with T.serial(best) as i:
                index = T.Bind(index_of(entries[start + i]))
                T.buffer_store(values, data[row, index, column], [row, i, column])
                T.buffer_store(indices, T.cast(index, "int64"), [row, i, column])
            if counted:
                with T.serial(k - best) as i:
                    rest = [row, best + i, column]
                    T.buffer_store(values, tirx.const(0, dtype), rest)
                    T.buffer_store(indices, tirx.const(0, "int64"), rest)

    return build_kernel(parameters, body)
