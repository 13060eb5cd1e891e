"""ONNX's TopK: the k largest or smallest elements along an axis, in order, and their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import (
    emit_sort,
    entry,
    index_of,
    sortable,
    words,
)
from neocpu.schedules.tir.builder import build_kernel, flat, splat, task_loop

FEW: Final = 128  # at most, elements are kept in order by insertion, which moves the others
MANY: Final = 8  # times the selected elements: from there on scanning beats sorting
WIDE: Final = 16  # elements are compared together: mostly none of them is among the best


def lower_top_k(
    shape: tuple[int, int, int],
    k: int,
    *,
    largest: bool,
    counted: bool = False,
    dtype: str = "float32",
) -> Any:
    """Return the scheduled ``PrimFunc(data, [count,] values, indices)`` along the middle axis.

    ``data`` is of ``dtype``, ``(outer, extent, inner)``; ``values`` and ``indices`` (int64) are
    ``(outer, k, inner)``. Equal elements come in the order of their indices. Only the first
    ``count``, ``(1,)`` int64, along the axis count, and results that are missing then are zeros::

        parallel outer · inner
          for each element: (sortable value, index)
          radix sort, 8 bits of the value at a time, of 64 bits in two parts
          for k: value and index

    Of a few elements among many, no more than these are kept, in order: where any of a vector is
    better than the last of them, each that is better is put between them.
    """
    outer, extent, inner = shape
    assert 0 < k <= extent, (shape, k)
    counts = [("count", (1,), "int64")] if counted else []
    results = (("values", (outer, k, inner), dtype), ("indices", (outer, k, inner), "int64"))

    def body(data: Any, *others: Any) -> None:
        *count, values, indices = others
        number = clipped(count[0], extent) if counted else extent
        best = T.Bind(T.min(number, k)) if counted else k
        with task_loop(outer * inner, outer * extent * inner) as task:
            row, column = task // inner, task % inner
            elements, first = flat(data), T.Bind(row * (extent * inner) + column)

            def score(i: Any) -> Any:
                return elements[first + i * inner]

            def scores(i: Any) -> Any:
                return elements[T.ramp(first + i * inner, inner, WIDE)]

            if words(dtype) == 1 and k <= FEW and extent >= MANY * k:
                entries, start = _select(score, scores, k, number, largest), 0
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

    return build_kernel((("data", shape, dtype), *counts, *results), body)


def _select(
    single: Callable[[Any], Any], several: Callable[[Any], Any], k: int, number: Any, largest: bool
) -> Any:
    """Return the best ``k`` entries in order, from scores read one by one or in vectors."""
    best = T.alloc_buffer((k,), "uint64", layout=None)
    with T.serial(k) as i:
        T.buffer_store(best, tirx.const(2**64 - 1, "uint64"), [i])

    def take(i: Any) -> None:
        new = T.Bind(entry(single(i), i, falling=largest))
        with T.If(new < best[k - 1]), T.Then():
            with T.serial(k - 1) as j:
                place = k - 1 - j
                T.buffer_store(best, T.min(best[place], T.max(best[place - 1], new)), [place])
            T.buffer_store(best, T.min(best[0], new), [0])

    begun = T.Bind(T.min(number, k))
    with T.serial(begun) as i:
        take(i)
    # Now as many elements are kept as are wanted: one that is no better than the last is skipped.
    rest = T.Bind(number - begun)
    with T.serial(rest // WIDE) as vector:
        first = T.Bind(begun + vector * WIDE)
        last = T.cast(T.shift_right(best[k - 1], tirx.const(32, "uint64")), "uint32")
        better = sortable(several(first), falling=largest) < splat(last, WIDE)
        one, zero = (splat(tirx.const(value, "int32"), WIDE) for value in (1, 0))
        bits = tirx.Select(better, one, zero)
        found = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", bits)
        with T.If(found != 0), T.Then(), T.serial(WIDE) as i:
            take(first + i)
    with T.serial(rest % WIDE) as i:
        take(begun + rest // WIDE * WIDE + i)
    return best


def _sort(
    score: Callable[[Any], Any], extent: int, number: Any, largest: bool, dtype: str
) -> tuple[Any, Any]:
    """Return all entries in order, and the place of the first."""
    entries = T.alloc_buffer((2 * extent,), "uint64", layout=None)
    start = None
    for word in range(words(dtype)):
        with T.serial(number) as i:
            index = i if start is None else T.Bind(index_of(entries[start + i]))
            T.buffer_store(entries, entry(score(index), index, falling=largest, word=word), [i])
        start = emit_sort(entries, extent, number)
    return entries, start
