"""ONNX's TopK: the k largest or smallest elements along an axis, in order, and their indices."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.radix_sort import emit_sort, entry, index_of
from neocpu.schedules.tir.builder import build_kernel, task_loop


def lower_top_k(shape: tuple[int, int, int], k: int, *, largest: bool) -> Any:
    """Scheduled ``PrimFunc(data, values, indices)`` of the top ``k`` along the middle axis.

    ``data`` is float32 of ``(outer, extent, inner)``; ``values`` and ``indices`` (int64) are
    ``(outer, k, inner)``. Equal elements come in the order of their indices.

    ::

        parallel outer · inner
          for each element: (sortable value, index)
          radix sort, 8 bits of the value at a time
          for k: value and index
    """
    outer, extent, inner = shape
    assert 0 < k <= extent, (shape, k)
    result = (outer, k, inner)
    parameters = (
        ("data", shape, "float32"),
        ("values", result, "float32"),
        ("indices", result, "int64"),
    )

    def body(data: Any, values: Any, indices: Any) -> None:
        with task_loop(outer * inner, outer * extent * inner) as task:
            row, column = task // inner, task % inner
            entries = T.alloc_buffer((2 * extent,), "uint64", layout=None)
            with T.serial(extent) as i:
                T.buffer_store(entries, entry(data[row, i, column], i, falling=largest), [i])
            start = emit_sort(entries, extent, extent)
            with T.serial(k) as i:
                index = T.Bind(index_of(entries[start + i]))
                T.buffer_store(values, data[row, index, column], [row, i, column])
                T.buffer_store(indices, T.cast(index, "int64"), [row, i, column])

    return build_kernel(parameters, body)
