"""Rows of bytes or bfloat16 in the form that kernels multiply, shared by all rows that read them.

The form is float32, or words of four bytes, each in all lanes of its group.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.bfloat16 import widened
from neocpu.schedules.tir.builder import span
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


class RowRing:
    """The rows under a window, in a form of their own.

    The buffer is a ring of as many rows as a window spans, rounded up to a power of two: row ``y``
    of the image lies at ``y`` modulo that.
    """

    def __init__(self, workload: Conv2dWorkload, lanes: int, data: Any) -> None:
        self._workload, self._lanes, self._data = workload, lanes, data
        self._reach = (workload.kernel[0] - 1) * workload.dilation[0] + 1
        self._mask = (1 << (self._reach - 1).bit_length()) - 1

    def _allocate(self, columns: int, vectors: int) -> Any:
        shape = (self._mask + 1, columns, self._lanes * vectors)
        return T.alloc_buffer(shape, self._workload.numerics.sum, layout=None)

    def _slot(self, row: Any) -> Any:
        return tirx.bitwise_and(row, self._mask)

    def _unread(self, first: Any, y: Any) -> tuple[Any, Any]:
        """Return the first row that output row ``y`` reads and the row before it did not, and the
        one after the last; they may lie outside. ``first``: the first output row.
        """
        w = self._workload
        top = T.Bind(y * w.stride[0] - w.padding[0])
        before = T.max(top, top - w.stride[0] + self._reach)
        return T.Select(y == first, top, before), top + self._reach


class WidenedRows(RowRing):
    """The rows under a window, for one vector of channels, in the type of the sums.

    In float32 they are the numbers that the data stand for. In int32 a pixel has one vector for
    each word of four channels of a group. ``data`` are bytes in NCHW[x]c with their ``zero`` point
    for every lane of a block, or the bits of bfloat16.

    The buffer is created inside the builder's frame.
    """

    def __init__(self, workload: Conv2dWorkload, lanes: int, data: Any, zero: Any | None) -> None:
        super().__init__(workload, lanes, data)
        self._zero = zero
        group = workload.numerics.group
        self._words = workload.kernel_shape[1] // group if group > 1 else 0
        self._kind = f"float32x{lanes}"
        self._rows = self._allocate(workload.width, max(self._words, 1))

    def pixel(self, row: Any, column: Any, word: int = 0) -> Any:
        vector = span(word * self._lanes, self._lanes)
        return self._rows[self._slot(row), column, vector]

    def widen(self, place: tuple[Any, Any, Any], first: Any, y: Any) -> None:
        """Widen the rows that output row ``y`` reads and the row before it did not; ``place`` is
        the image, chunk and first lane, ``first`` the first output row.
        """
        w, (image, chunk, lane) = self._workload, place
        start, end = self._unread(first, y)
        start = T.Bind(T.max(T.min(start, w.height), 0))
        end = T.max(T.min(end, w.height), start)
        every = span(lane, self._lanes)
        zero = None if self._zero is None else T.Bind(self._zero[every].astype(self._kind))
        with T.serial(end - start) as row, T.serial(w.width) as column:
            stored = self._data[image, chunk, start + row, column, every]
            slot = self._slot(start + row)
            for number, vector in enumerate(self._made(stored, zero)):
                at = [slot, column, span(number * self._lanes, self._lanes)]
                T.buffer_store(self._rows, vector, at)

    def _made(self, stored: Any, zero: Any | None) -> list[Any]:
        if not self._words:
            value = stored.astype(self._kind) if self._data.dtype == "uint8" else widened(stored)
            return [value if zero is None else value - zero]
        words = T.Bind(tirx.reinterpret(f"int32x{self._lanes // 4}", stored))
        width = 4 * self._words
        first = [lane // width * self._words for lane in range(self._lanes)]
        # A shuffle has no more lanes than its operands, so the operand is repeated four times.
        return [T.Shuffle([words] * 4, [of + word for of in first]) for word in range(self._words)]
