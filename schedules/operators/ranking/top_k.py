"""ONNX's TopK: the k largest or smallest elements along an axis, in order, and their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import emit_sort, entry, index_of, words
from neocpu.schedules.tir.builder import build_kernel, task_loop

FEW: Final = 128
"""Elements that are kept in order one by one, at most: each that is kept moves the others."""
MANY: Final = 8
"""As many times as many elements are worth looking at instead of sorting them."""


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

    Of a few elements among many, no more than these are kept, in order, while all are looked at::

          for each element better than the last that is kept: put it between them
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

            def score(i: Any) -> Any:
                return data[row, i, column]

            if words(dtype) == 1 and k <= FEW and extent >= MANY * k:
                entries, start = _select(score, k, number, largest), 0
            else:
                entries, start = _sort(score, extent, number, largest, dtype)
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


def _select(score: Callable[[Any], Any], k: int, number: Any, largest: bool) -> Any:
    """Return the best ``k`` entries, in order."""
    best = T.alloc_buffer((k,), "uint64", layout=None)
    with T.serial(k) as i:
        T.buffer_store(best, tirx.const(2**64 - 1, "uint64"), [i])
    with T.serial(number) as i:
        new = T.Bind(entry(score(i), i, falling=largest))
        with T.If(new < best[k - 1]), T.Then():
            with T.serial(k - 1) as j:
                place = k - 1 - j
                T.buffer_store(best, T.min(best[place], T.max(best[place - 1], new)), [place])
            T.buffer_store(best, T.min(best[0], new), [0])
    return best


def _sort(
    score: Callable[[Any], Any], extent: int, number: Any, largest: bool, dtype: str
) -> tuple[Any, Any]:
    """Return all entries in order, and where they start."""
    entries = T.alloc_buffer((2 * extent,), "uint64", layout=None)
    start = None
    for word in range(words(dtype)):
        with T.serial(number) as i:
            index = i if start is None else T.Bind(index_of(entries[start + i]))
            T.buffer_store(entries, entry(score(index), index, falling=largest, word=word), [i])
        start = emit_sort(entries, extent, number)
    return entries, start
