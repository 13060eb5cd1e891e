"""Rows of bytes or bfloat16 as float32: each widened once, for all rows of output that read it."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.bfloat16 import widened
from neocpu.schedules.tir.builder import span
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


class WidenedRows:
    """The rows under a window, of one vector of channels, as what they stand for in float32.

    A ring of as many rows as a window spans, rounded up to a power of two: row ``y`` of the image
    lies at ``y`` modulo that. Created inside the builder's frame.

    Parameters
    ----------
    data, zero : buffer
        Bytes in NCHW[x]c, and their zero point for every lane of a block, if it is not 0; or
        the bits of bfloat16.
    """

    def __init__(self, workload: Conv2dWorkload, lanes: int, data: Any, zero: Any | None) -> None:
        self._workload, self._lanes, self._data, self._zero = workload, lanes, data, zero
        self._reach = (workload.kernel[0] - 1) * workload.dilation[0] + 1
        self._mask = (1 << (self._reach - 1).bit_length()) - 1
        shape = (self._mask + 1, workload.width, lanes)
        self._rows = T.alloc_buffer(shape, workload.numerics.sum, layout=None)

    def pixel(self, row: Any, column: Any) -> Any:
        """Return a vector of channels of a row that was widened."""
        return self._rows[tirx.bitwise_and(row, self._mask), column, span(0, self._lanes)]

    def widen(self, place: tuple[Any, Any, Any], first: Any, y: Any) -> None:
        """Widen what row ``y`` of the output reads and the one before it, from ``first``, did not.

        ``place`` is the image, the chunk, and the vector's first lane.
        """
        w, (image, chunk, lane) = self._workload, place
        top = T.Bind(y * w.stride[0] - w.padding[0])
        before = T.Select(y == first, top, T.max(top, top - w.stride[0] + self._reach))
        start = T.Bind(T.max(T.min(before, w.height), 0))
        end = T.max(T.min(top + self._reach, w.height), start)
        kind, every = f"float32x{self._lanes}", span(lane, self._lanes)
        zero = None if self._zero is None else T.Bind(self._zero[every].astype(kind))
        with T.serial(end - start) as row, T.serial(w.width) as column:
            stored = self._data[image, chunk, start + row, column, every]
            value = stored.astype(kind) if self._data.dtype == "uint8" else widened(stored)
            at = [tirx.bitwise_and(start + row, self._mask), column, span(0, self._lanes)]
            T.buffer_store(self._rows, value if zero is None else value - zero, at)
