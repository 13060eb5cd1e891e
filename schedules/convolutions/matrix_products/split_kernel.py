"""Register tiles of float32 values that are each the sum of two bfloat16 values.

A task splits the pixels of its strip. Of the four products of two sums, the smallest is left out::

    sums += pixels' upper * weights' lower
    sums += pixels' upper * weights' upper
    sums += pixels' lower * weights' upper

Each tile is loaded once for all of them. This order was the fastest of those measured on a Granite
Rapids: 16.0 cycles per product of tiles with pixels in L1 and weights in L2.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.strip_nest import Source
from neocpu.schedules.convolutions.kernel_nest import moved_back
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import (
    JOINED_BLOCK,
    LINE,
    PARTS,
    SplitTiling,
)
from neocpu.schedules.convolutions.matrix_products.tile_kernel import LEAST_LINES, TileNest
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.tir.bfloat16 import BITS, rounded_bits, roundings, widened
from neocpu.schedules.tir.builder import flat, span
from neocpu.schedules.vocabulary.layout import ceil_div

UPPER, LOWER = range(PARTS)
# The number of values that are split at a time: a vector of float32.
VECTOR = 16


class SplitNest(TileNest):
    """Register tiles of whole tiles of sums, with pixels and weights in two parts."""

    _tiling: SplitTiling

    def _instructions(self) -> ExitStack:
        frames = super()._instructions()
        frames.enter_context(roundings({VECTOR}))
        return frames

    def _copies(self, image: Any, tile: Any, top: Any) -> Any:
        if self._tiling.is_flat:
            return self._split_row(image, tile)
        return (self._joined if self._tiling.joins_columns else self._padded)(image, top)

    def _joined(self, image: Any, top: Any) -> Any:
        """Split the rows of a strip of a picture, and copy the columns of windows side by side."""
        t, w = self._tiling, self._workload
        padded = self._parts(t.strip_rows, t.line_columns)
        above, left, *_ = w.padding
        size = (t.strip_columns + LINE // JOINED_BLOCK) * JOINED_BLOCK
        rows = T.alloc_buffer((PARTS, ceil_div(size, VECTOR) * VECTOR), BITS, layout=None)
        with T.serial(ceil_div(size, VECTOR)) as number:
            for part in range(PARTS):
                zero = T.broadcast(tirx.const(0, BITS), VECTOR)
                T.buffer_store(rows, zero, [part, span(number * VECTOR, VECTOR)])
        with T.serial(t.strip_rows) as row:
            y = T.Bind(top * w.stride[0] + row - above)
            with T.If(tirx.all(y >= 0, y < w.height)):
                with T.Then():
                    self._split_picture(rows, image, y, left)
                    with T.serial(t.line_columns) as x:
                        for part in range(PARTS):
                            first = x * (w.stride[1] * JOINED_BLOCK)
                            line = rows[part, span(first, LINE)]
                            T.buffer_store(padded, line, [0, part, row, x, span(0, LINE)])
                with T.Else():
                    self._clear(padded, (0, row), 0, t.line_columns)
        return padded

    def _split_picture(self, rows: Any, image: Any, y: Any, left: int) -> None:
        """Split a row, one vector of pixels at a time; the last vector moves back."""
        w = self._workload
        each = VECTOR // JOINED_BLOCK
        pixels = flat(self._data)
        with T.serial(ceil_div(w.width, each)) as number:
            x = T.Bind(T.min(number * each, w.width - each))
            start = ((image * w.height + y) * w.width + x) * JOINED_BLOCK
            parts = self._halves(T.Bind(pixels[span(start, VECTOR)]))
            for part, bits in enumerate(parts):
                T.buffer_store(rows, bits, [part, span((left + x) * JOINED_BLOCK, VECTOR)])

    def _split_row(self, image: Any, tile: Any) -> Any:
        """Split the pixels of a strip of an image that forms one row."""
        t, w = self._tiling, self._workload
        padded = self._parts(1, t.copied_pixels)
        start = T.Bind(moved_back(tile, self._scheme.reg_n, t.columns))
        with T.serial(t.chunks) as line:
            with T.serial(T.min(t.copied_pixels, t.columns - start)) as pixel:
                at = T.Bind(start + pixel)
                y = tirx.floordiv(at, w.out_width) * w.stride[0]
                x = tirx.floormod(at, w.out_width) * w.stride[1]
                self._split(padded, (line, 0, pixel), image, T.Bind(y), T.Bind(x))
        self._start = start
        return padded

    def _padded(self, image: Any, top: Any) -> Any:
        t, w = self._tiling, self._workload
        padded = self._parts(t.strip_rows, t.strip_columns)
        above, left, _, right = w.padding

        with T.serial(t.chunks) as line, T.serial(t.strip_rows) as row:
            y = T.Bind(top * w.stride[0] + row - above)
            with T.If(tirx.all(y >= 0, y < w.height)):
                with T.Then():
                    self._clear(padded, (line, row), 0, left)
                    with T.serial(w.width) as x:
                        self._split(padded, (line, row, left + x), image, y, x)
                    self._clear(padded, (line, row), left + w.width, right)
                with T.Else():
                    self._clear(padded, (line, row), 0, t.strip_columns)
        return padded

    def _clear(self, padded: Any, at: tuple[Any, Any], first: int, columns: int) -> None:
        line, row = at
        if columns:
            with T.serial(columns) as x:
                for part in range(PARTS):
                    zero = T.broadcast(tirx.const(0, BITS), LINE)
                    T.buffer_store(padded, zero, [line, part, row, first + x, span(0, LINE)])

    def _parts(self, rows: int, columns: int) -> Any:
        columns = max(columns, ceil_div(LEAST_LINES, self._tiling.chunks * PARTS * rows))
        return T.alloc_buffer((self._tiling.chunks, PARTS, rows, columns, LINE), BITS, layout=None)

    def _split(self, padded: Any, at: tuple[Any, ...], image: Any, y: Any, x: Any) -> None:
        """Split the channels of a line of one pixel into a place of `_parts`."""
        (line, row, column), block = at, self._scheme.ic_bn
        for first in range(0, LINE, VECTOR):
            channel = line * LINE + first
            chunk, lane = tirx.floordiv(channel, block), tirx.floormod(channel, block)
            value = self._value((image, T.Bind(chunk), y, x), T.Bind(lane))
            for part, bits in enumerate(self._halves(value)):
                T.buffer_store(padded, bits, [line, part, row, column, span(first, VECTOR)])

    def _halves(self, value: Any) -> tuple[Any, Any]:
        upper = T.Bind(rounded_bits(value, VECTOR))
        return upper, rounded_bits(value - widened(upper), VECTOR)

    def _value(self, at: tuple[Any, ...], lane: Any) -> Any:
        """Bind a vector of channels of a pixel, with the prologue."""
        vector = T.alloc_buffer((VECTOR,), "float32", scope="local", layout=None)
        with T.vectorized(VECTOR) as o:
            index = (*at, lane + o)
            steps, readers = self._workload.prologue, self._before
            T.buffer_store(vector, apply_steps(self._data[index], steps, readers, index), [o])
        return T.Bind(vector[span(0, VECTOR)])

    def _copied(self, padded: Any, first: Any, top: Any, left: Any) -> Source:
        if self._tiling.joins_columns:
            left = T.Bind(tirx.floordiv(left, self._workload.stride[1]))
        return lambda line, y, x, part: padded[line, part, top + y, left + x, 0]

    def _flat(self, image: Any, first: Any, column: Any, padded: Any) -> Source:
        return self._copied(padded, 0, 0, T.Bind(column - self._start))

    def _multiply(self, at: tuple[Any, ...], source: Source) -> None:
        t, w = self._tiling, self._workload
        block, line, kh, kw, _ = at
        down, across = range(t.block_rows), range(t.block_columns)
        pixels = [len(down) * len(across) + i for i in down]
        taps = [pixels[-1] + 1 + j for j in across]

        def load_pixels(i: int, part: int) -> None:
            x = i * t.rows_of_block * t.column_step + kw * w.dilation[1]
            self._load(pixels[i], source(line, kh * w.dilation[0], x, part), t.row_stride)

        def load_taps(j: int, part: int) -> None:
            place = self._weights[block, line, kh, kw, part, 0, j * LINE]
            self._load(taps[j], place, self._scheme.reg_oc * self._unit.group * t.element)

        def multiply(i: int, j: int) -> None:
            self._product(i * len(across) + j, pixels[i], taps[j])

        for j in across:
            load_taps(j, LOWER)
            for i in down:
                if j == 0:
                    load_pixels(i, UPPER)
                multiply(i, j)
        for j in across:
            load_taps(j, UPPER)
            for i in down:
                multiply(i, j)
        for i in down:
            load_pixels(i, LOWER)
            for j in across:
                multiply(i, j)
