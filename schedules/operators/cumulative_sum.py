"""ONNX's CumSum: running sums along one axis."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import build_kernel, task_loop


def lower_cumulative_sum(
    shape: tuple[int, int, int], dtype: str, *, exclusive: bool, reverse: bool
) -> Any:
    """Scheduled ``PrimFunc(data, output)`` of the sums along the middle axis.

    Parameters
    ----------
    shape : tuple of int
        ``(outer, extent, inner)`` of data and output.
    exclusive : bool
        Whether an element's own sum is without it.
    reverse : bool
        Whether sums start from the end.

    ::

        parallel outer
          output[first] = data[first], or 0
          for the others: for inner: output[i] = output[i - 1] + data[i], or data[i - 1]
    """
    outer, extent, inner = shape
    first, step = (extent - 1, -1) if reverse else (0, 1)

    def body(data: Any, output: Any) -> None:
        with task_loop(outer, outer * extent * inner) as row:
            with T.serial(inner) as column:
                start = tirx.const(0, dtype) if exclusive else data[row, first, column]
                T.buffer_store(output, start, [row, first, column])
            with T.serial(extent - 1) as i, T.serial(inner) as column:
                before, here = first + step * i, first + step * (i + 1)
                value = data[row, before if exclusive else here, column]
                T.buffer_store(output, output[row, before, column] + value, [row, here, column])

    return build_kernel((("data", shape, dtype), ("output", shape, dtype)), body)
