"""Grouped convolutions of narrow images of any width: copied rows with their border.

Without a border, a row's first and last pixels are register tiles of their own, which is slow if
the width is unknown: taps beside the image are left out one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.in_groups.group_kernel import Emitter
from neocpu.schedules.convolutions.in_groups.widened_rows import RowRing
from neocpu.schedules.tir.bfloat16 import widened
from neocpu.schedules.tir.builder import span, splat
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import GroupScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import least_of, smaller, typical_of
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# Estimated cycles of copying a vector, and of a pixel beside the border and of each tap of it.
_COPY_CYCLES, _EDGE_CYCLES, _EDGE_TAP_CYCLES = 1, 30, 4
_NARROWER = 4  # the divisor of a tile's width where rows do not fill one


def frames_rows(workload: Conv2dWorkload, scheme: GroupScheme, target: CpuTarget) -> bool:
    """Return whether a kernel for any width copies rows, judged by the typical width."""
    w = typical_of(workload)
    width = w.kernel_shape[1]
    narrow = width == 1 or width < target.dot_unit(w.numerics).lanes
    floats = w.numerics.data in ("float32", "bfloat16") and not w.pads_with_zero_point
    if not scheme.moves_back or not narrow or not floats or w.frames is not None:
        return False
    sides = ceil_div(w.padding[1], w.stride[1]) + ceil_div(w.padding[3], w.stride[1])
    taps = w.kernel[0] * w.kernel[1]
    copied = min(w.stride[0], w.kernel[0]) * w.width * _COPY_CYCLES
    return copied < sides * (_EDGE_CYCLES + taps * _EDGE_TAP_CYCLES)


class FramedRows(RowRing):
    """The rows under a window with zeros around the image, for one vector of channels, in float32.

    The buffer is created inside the builder's frame, and then has zeros beside all rows.
    """

    def __init__(self, workload: Conv2dWorkload, lanes: int, data: Any) -> None:
        super().__init__(workload, lanes, data)
        _, left, _, right = workload.padding
        self._rows = self._allocate(workload.width + (left + right), 1)
        for start, count in ((0, left), (workload.width + left, right)):
            with T.serial(self._mask + 1) as slot, T.serial(count) as column:
                self._store(slot, start + column, self._zero())

    def pixel(self, row: Any, column: Any) -> Any:
        place = [self._slot(row), column + self._workload.padding[1]]
        return self._rows[*place, span(0, self._lanes)]

    def copy(self, place: tuple[Any, Any, Any], first: Any, y: Any) -> None:
        """Copy the rows that output row ``y`` reads and the row before it did not; ``place`` is
        the image, chunk and first lane, ``first`` the first output row.
        """
        w, (image, chunk, lane) = self._workload, place
        start, end = self._unread(first, y)
        start, left = T.Bind(start), w.padding[1]
        with T.serial(end - start) as number:
            row = T.Bind(start + number)
            slot = T.Bind(self._slot(row))
            with T.If(tirx.all(row >= 0, row < w.height)):
                with T.Then(), T.serial(w.width) as column:
                    stored = self._data[image, chunk, row, column, span(lane, self._lanes)]
                    value = stored if self._data.dtype == "float32" else widened(stored)
                    self._store(slot, left + column, value)
                with T.Else(), T.serial(w.width) as column:
                    self._store(slot, left + column, self._zero())

    def _store(self, slot: Any, column: Any, value: Any) -> None:
        T.buffer_store(self._rows, value, [slot, column, span(0, self._lanes)])

    def _zero(self) -> Any:
        return splat(tirx.const(0, "float32"), self._lanes)


class FramedEmitter(Emitter):
    """An `Emitter` of register tiles that read `FramedRows`."""

    def _band(self, image: Any, chunk: Any, first: Any, rows: Any) -> None:
        w, unrolls = self._workload, self._scheme.unroll_ker
        taps = (self._every_tap if unrolls else self._looped_taps), unrolls
        with T.serial(self._vectors) as vector:
            self._lane = T.Bind(vector * self._lanes)
            framed = self._widened = FramedRows(w, self._lanes, self._data)
            with T.serial(rows) as row:
                y = T.Bind(first + row)
                framed.copy((image, chunk, self._lane), first, y)
                top = T.Bind(y * w.stride[0] - w.padding[0])
                for width, count in self._counts():
                    with T.serial(count) as tile:
                        x = T.Bind(T.min(tile * width, w.out_width - width))
                        self._tile(((image, chunk), y, top), x, width, None, taps)

    def _looped_taps(self, emit: Callable[[Any], None]) -> None:
        with T.serial(self._workload.kernel[0]) as kh:
            emit(kh)

    def _counts(self) -> Iterator[tuple[int, int]]:
        """Yield widths of register tiles, and how many of each a row has: there is one width that
        has any, the largest that fits.
        """
        outputs, left = self._workload.out_width, 1
        whole = max(1, min(self._scheme.reg_n, typical_of(outputs)))
        for width in dict.fromkeys((whole, max(1, whole // _NARROWER), 1)):
            fits = smaller(outputs // width, 1)
            yield width, ceil_div(outputs, width) * fits * left
            if least_of(outputs) >= width:
                return
            left = left * (1 - fits)
