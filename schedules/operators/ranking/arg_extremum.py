"""ONNX's ArgMax and ArgMin: the index of the largest or smallest element along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.builder import build_kernel, flat, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import ceil_div

LANES = 16


def lower_arg_extremum(
    shape: tuple[int, int, int], dtype: str, *, largest: bool, last: bool
) -> Any:
    """Return the scheduled ``PrimFunc(data, indices)`` along the middle axis.

    ``data`` is ``shape``, ``(outer, extent, inner)``; ``indices``, int64, has ``(outer, inner)``.
    What is no number counts as the best infinity. Of equal elements the first one counts, or the
    ``last``::

        parallel outer · columns of inner       # the last ones overlap those before them
          for the axis: for columns side by side: keep the better one, and its index

    Of few columns, each is looked at in vectors along the axis, whose lanes are compared last.
    """
    outer, extent, inner = shape
    wide = inner >= LANES

    def body(data: Any, indices: Any) -> None:
        values, results = flat(data), flat(indices)
        if wide:
            parts = ceil_div(inner, LANES)
            with task_loop(outer * parts, outer * extent * inner) as task:
                row = task // parts
                column = T.Bind(T.min(task % parts * LANES, inner - LANES))
                best = _Best(dtype, LANES, largest, last)
                first = T.Bind(row * (extent * inner) + column)
                best.begin(values[span(first, LANES)], splat(tirx.const(0, "int32"), LANES))
                with T.serial(extent - 1) as i:
                    place = splat(i + 1, LANES)
                    best.take(values[span(first + (i + 1) * inner, LANES)], place)
                found = T.cast(best.index[span(0, LANES)], f"int64x{LANES}")
                T.buffer_store(results, found, [span(row * inner + column, LANES)])
            return
        width = min(extent, LANES)
        vectors = extent // width
        with task_loop(outer * inner, outer * extent * inner) as task:
            first = T.Bind(task // inner * (extent * inner) + task % inner)

            def at(i: Any, lanes: int) -> Any:
                start = first + i * inner
                return values[T.ramp(start, inner, lanes) if lanes > 1 else start]

            lanes = (
                T.ramp(tirx.const(0, "int32"), 1, width) if width > 1 else tirx.const(0, "int32")
            )
            best = _Best(dtype, width, largest, last)
            best.begin(at(0, width), lanes)
            with T.serial(vectors - 1) as i:
                best.take(at((i + 1) * width, width), lanes + (i + 1) * width)
            if extent % width:
                end = extent - width
                best.take(at(end, width), lanes + end)
            best.join()
            T.buffer_store(results, T.cast(best.index[0], "int64"), [task])

    return build_kernel((("data", shape, dtype), ("indices", (outer, inner), "int64")), body)


class _Best:
    """The largest or smallest elements so far, lane by lane, with their indices."""

    def __init__(self, dtype: str, width: int, largest: bool, last: bool) -> None:
        self._dtype, self._width = dtype, width
        self._largest, self._last = largest, last
        self.value = T.alloc_buffer((width,), dtype, layout=None)
        self.index = T.alloc_buffer((width,), "int32", layout=None)

    def begin(self, value: Any, index: Any) -> None:
        at = [span(0, self._width)]
        T.buffer_store(self.value, self._number(value), at)
        T.buffer_store(self.index, index, at)

    def take(self, value: Any, index: Any) -> None:
        """Take elements where they are better, in order of their indices; one may come twice."""
        value, at = T.Bind(self._number(value)), span(0, self._width)
        own = self.value[at]
        if self._largest:
            better = value >= own if self._last else value > own
        else:
            better = value <= own if self._last else value < own
        self._keep(better, value, index, at)

    def join(self) -> None:
        """Combine all lanes in the first one, half by half, an odd lane with the last."""
        width = self._width
        while width > 1:
            half = width // 2
            here, there = span(0, half), span(width - half, half)
            value, index = T.Bind(self.value[there]), T.Bind(self.index[there])
            own, place = self.value[here], self.index[here]
            better = value > own if self._largest else value < own
            sooner = index > place if self._last else index < place
            equal = T.bitwise_and(value == own, sooner)
            self._keep(T.bitwise_or(better, equal), value, index, here)
            width -= half

    def _keep(self, better: Any, value: Any, index: Any, at: Any) -> None:
        # The comparison depends on the values, so they change last.
        T.buffer_store(self.index, tirx.Select(better, index, self.index[at]), [at])
        T.buffer_store(self.value, tirx.Select(better, value, self.value[at]), [at])

    def _number(self, value: Any) -> Any:
        """Return elements with the best infinity in place of NaN."""
        if not self._dtype.startswith("float"):
            return value
        bits = f"int{8 * bytes_of(self._dtype)}"
        kind, real = (f"{k}x{self._width}" if self._width > 1 else k for k in (bits, self._dtype))
        bound = T.Bind(value)
        magnitude = T.bitwise_and(T.reinterpret(kind, bound), tirx.const(np.iinfo(bits).max, kind))
        infinity = np.array(np.inf, self._dtype)
        is_number = magnitude <= tirx.const(int(infinity.view(bits)), kind)
        best = tirx.const(float(infinity if self._largest else -infinity), real)
        return tirx.Select(is_number, bound, best)
