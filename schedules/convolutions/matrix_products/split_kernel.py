"""Register tiles of float32 values that are each the sum of two bfloat16 values.

A task splits the pixels of its strip.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.strip_nest import Source
from neocpu.schedules.convolutions.matrix_products.split_tiling import SplitTiling
from neocpu.schedules.convolutions.matrix_products.tile_kernel import TileNest
from neocpu.schedules.isa.catalogue import ROW_BYTES
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.tir.bfloat16 import BITS, parts_of, roundings
from neocpu.schedules.tir.builder import span
from neocpu.schedules.tir.tiles import LINE, PARTS, Rows, multiply

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
        t = self._tiling
        if t.is_flat and t.joined is None:
            return self._split_row(image, tile)
        return self._padded(image, top)

    @property
    def bits(self) -> str:
        return BITS

    def parts_of(self, value: Any) -> tuple[Any, ...]:
        return parts_of(value, VECTOR)

    def _split_row(self, image: Any, tile: Any) -> Any:
        """Split the pixels of a strip of an image that forms one row."""
        t, w = self._tiling, self._workload
        padded = self.lines(1, t.copied_pixels)
        start = T.Bind(self._begin(tile, self._scheme.reg_n, t.columns))
        with T.serial(t.chunks) as line:
            with T.serial(T.min(t.copied_pixels, t.columns - start)) as pixel:
                number = T.Bind(start + pixel)
                y = tirx.floordiv(number, w.out_width) * w.stride[0]
                x = tirx.floormod(number, w.out_width) * w.stride[1]
                at = (line, 0, 0, 0, pixel)
                self.copy_pixel(padded, at, image, T.Bind(y), T.Bind(x))
        self._start = start
        return padded

    def _padded(self, image: Any, top: Any) -> Any:
        t, w = self._tiling, self._workload
        if t.joins_columns or t.joined is not None:
            return super()._padded(image, top)
        padded = self.lines(t.strip_rows, t.strip_columns)
        above, left, _, right = w.padding
        with T.serial(t.chunks) as line, T.serial(t.strip_rows) as row:
            at = (line, 0, 0, row)
            y = T.Bind(top * w.stride[0] + row - above)
            with T.If(tirx.all(y >= 0, y < w.height)):
                with T.Then():
                    self.clear(padded, at, 0, left)
                    with T.serial(w.width) as x:
                        self.copy_pixel(padded, (*at, left + x), image, y, x)
                    self.clear(padded, at, left + w.width, right)
                with T.Else():
                    self.clear(padded, at, 0, t.strip_columns)
        return padded

    def copy_pixel(self, padded: Any, at: tuple[Any, ...], image: Any, y: Any, x: Any) -> None:
        (line, *rest), block = at, self._scheme.ic_bn
        for first in range(0, LINE, VECTOR):
            channel = line * LINE + first
            chunk, lane = tirx.floordiv(channel, block), tirx.floormod(channel, block)
            value = self._value((image, T.Bind(chunk), y, x), T.Bind(lane))
            for part, bits in enumerate(self.parts_of(value)):
                T.buffer_store(padded, bits, [line, part, *rest, span(first, VECTOR)])

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
            return super()._copied(padded, first, top, left)
        return lambda line, y, x, part: padded[line, part, 0, 0, top + y, left + x, 0]

    def _flat(self, image: Any, first: Any, column: Any, padded: Any) -> Source:
        if self._tiling.joined is not None:
            return super()._flat(image, first, column, padded)
        return self._copied(padded, 0, 0, T.Bind(column - self._start))

    def _part_and_lane(self, at: Any) -> tuple[Any, Any]:
        return at, 0

    def _multiply(self, at: tuple[Any, ...], source: Source) -> None:
        t = self._tiling
        block, line, kh, kw, _ = at

        def pixels(i: int, part: int) -> Rows:
            return source(line, *self._place(i, kh, kw), part), t.row_stride

        def taps(j: int, part: int) -> Rows:
            column = block * t.block_columns + j
            return self._weights[column, line, kh, kw, part, 0, 0], ROW_BYTES

        multiply(self._unit.instruction.name, t.grid, pixels, taps, PARTS)
