"""Register tiles in AMX's tile registers.

With two rows and two columns of blocks, the loop nest is::

    sums[0..3] = 0
    for ic_chunk, kh, kw, line of ic_bn:
        load weights 0, pixels 0;  sums[0] += pixels 0 * weights 0
        load pixels 1;             sums[2] += pixels 1 * weights 0
        load weights 1;            sums[1] += pixels 0 * weights 1;  sums[3] += pixels 1 * weights 1
    output[…] = epilogue(sums)        # by way of memory, where a pixel takes lines of the caches
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.strip_nest import Source, Start, StripNest, Tile
from neocpu.schedules.convolutions.matrix_products.joined_copies import join_columns, join_rows
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_ROWS
from neocpu.schedules.tir.builder import flat, prefetch_to_l2, span
from neocpu.schedules.tir.tiles import (
    LEAST_LINES,
    Rows,
    clear,
    configured,
    keep_awake,
    multiply,
    store,
    tile_definitions,
)
from neocpu.schedules.vocabulary.layout import ceil_div

_DIVISION: Final = (tirx.floordiv, tirx.floormod)


class TileNest(StripNest):
    """Register tiles of whole tiles of sums."""

    _tiling: MatrixTiling

    def _instructions(self) -> ExitStack:
        t = self._tiling
        frames = ExitStack()
        frames.enter_context(tile_definitions())
        frames.enter_context(self._results.frame())
        shape = (t.pixel_blocks * TILE_ROWS, t.vectors, self._lanes)
        kind = self._workload.numerics.sum
        self._scratch = T.alloc_buffer(shape, kind, layout=None)
        return frames

    def _products(self) -> AbstractContextManager[None]:
        t = self._tiling
        row_bytes, right_rows = t.depth * t.element, t.depth // t.unit.group
        return configured(t.pixel_blocks, t.block_columns, t.rows_of_block, row_bytes, right_rows)

    def _strip(self) -> Any:
        t, block = self._tiling, self._scheme.ic_bn
        lines = t.image_chunks * t.strip_rows * block * t.element // ROW_BYTES
        rows, columns = t.strip_rows, t.strip_columns
        if t.overhangs:
            rows += ceil_div(t.slack + LEAST_LINES, columns)
        else:
            columns = max(columns, ceil_div(LEAST_LINES, max(1, lines)))
        shape = (t.image_chunks, rows, columns, block)
        return T.alloc_buffer(shape, self._copied_type, layout=None)

    def _first_row(self, tile: Any) -> Any:
        t = self._tiling
        if t.joined is None:
            return super()._first_row(tile)
        first = self._begin(tile, self._scheme.reg_n, t.columns)
        return T.Bind(tirx.floordiv(first, t.joined.pitch))

    def _padded(self, image: Any, top: Any) -> Any:
        t = self._tiling
        if t.joins_columns:
            return join_columns(self, t, self._data, image, top)
        if t.joined is None:
            return super()._padded(image, top)
        self._start = T.Bind(top * t.joined.pitch)
        return join_rows(self, t, t.joined, image, top)

    def lines(self, rows: int, columns: int, phases: tuple[int, int] = (1, 1)) -> Any:
        t = self._tiling
        block = self._scheme.ic_bn if t.parts == 1 and not t.joins_columns else t.line
        planes = t.image_chunks * t.parts * phases[0] * phases[1]
        least = LEAST_LINES * ROW_BYTES // (block * t.element)
        if not t.overhangs:
            rows = max(rows, ceil_div(least, planes * columns))
        elif t.is_flat and t.joined is None:
            columns += t.slack + least
        else:
            rows += ceil_div(t.slack + least, columns)
        shape = (t.image_chunks, t.parts, *phases, rows, columns, block)
        return T.alloc_buffer(shape, self.bits, layout=None)

    @property
    def bits(self) -> str:
        return str(self._data.dtype)

    def copy_pixel(self, padded: Any, at: tuple[Any, ...], image: Any, y: Any, x: Any) -> None:
        chunk = at[0]
        block = span(0, self._scheme.ic_bn)
        T.buffer_store(padded, self._data[image, chunk, y, x, block], [chunk, 0, *at[1:], block])

    def clear(self, padded: Any, at: tuple[Any, ...], first: int, columns: int) -> None:
        if not columns:
            return
        chunk, *rest = at
        with T.serial(columns) as x:
            for part in range(self._tiling.parts):
                place = [chunk, part, *rest, first + x]
                with T.vectorized(int(padded.shape[-1])) as lane:
                    outside = self._outside(tirx.floormod(lane, self._scheme.ic_bn))
                    T.buffer_store(padded, tirx.Cast(self.bits, outside), [*place, lane])

    def parts_of(self, value: Any) -> tuple[Any, ...]:
        return (value,)

    def _tile(self, at: Tile, source: Source, start: Start) -> None:
        t = self._tiling
        clear(t.pixel_blocks * t.block_columns)
        chunks, steps = t.unrolled_chunks, t.unrolled_steps
        with self._serial(t.chunks // chunks) as first, self._serial(t.steps // steps) as part:
            with self._rows() as rows:
                keep_awake()
                if t.prefetched_lines:
                    turn = first * (t.steps // steps) + part
                    looped = len(rows) < t.workload.kernel[0]
                    self._prefetch(at[1], turn * t.workload.kernel[0] + rows[0] if looped else turn)
                inner = product(range(chunks), range(steps), rows, range(t.window_columns))
                for chunk, step, kh, kw in inner:
                    line = (at[1], first * chunks + chunk, kh, kw, part * steps + step)
                    self._multiply(line, source)
        stride = t.vectors * ROW_BYTES
        for i, j in product(range(t.pixel_blocks), range(t.block_columns)):
            place = self._scratch[i * t.rows_of_block, j, 0]
            store(i * t.block_columns + j, place, stride)
        self._store(self._scratch, at)

    def _prefetch(self, block: Any, turn: Any) -> None:
        """Fetch a part of the next block's weights to L2, in a turn of a register tile's loops."""
        t = self._tiling
        lines = (self._visit * t.turns + turn) * t.prefetched_lines
        each = ROW_BYTES // t.element
        first = T.Bind((block + 1) * (t.block_bytes // t.element) + lines * each)
        weights = flat(self._weights)
        with T.serial(t.prefetched_lines) as line:
            T.evaluate(prefetch_to_l2(weights, [first + line * each]))

    def _multiply(self, at: tuple[Any, ...], source: Source) -> None:
        t = self._tiling
        block, chunk, kh, kw, step = at
        line = chunk * t.steps + step

        def pixels(i: int) -> Rows:
            y, x = self._place(i, kh, kw)
            return source(chunk, y, x, step * t.depth), t.row_stride

        def taps(j: int) -> Rows:
            column = block * t.block_columns + j
            return self._weights[column, line, kh, kw, 0, 0], ROW_BYTES

        multiply(self._unit.instruction.name, t.grid, pixels, taps)

    def _place(self, block: int, kh: Any, kw: Any) -> tuple[Any, Any]:
        """Return the row and the column of a block's first pixel at a tap, from the tile's."""
        t, w = self._tiling, self._workload
        row, number = divmod(block, t.block_rows)
        x = number * t.rows_of_block * t.column_step + kw * w.dilation[1]
        return row * w.stride[0] + kh * w.dilation[0], x

    def _copied(self, padded: Any, first: Any, top: Any, left: Any) -> Source:
        if not self._tiling.joins_columns:
            return super()._copied(padded, first, top, left)
        column = T.Bind(tirx.floordiv(left, self._workload.stride[1]))
        return lambda chunk, y, x, part: padded[chunk, part, 0, 0, top + y, column + x, 0]

    def _flat(self, image: Any, first: Any, column: Any, padded: Any) -> Source:
        joined = self._tiling.joined
        if joined is None:
            return super()._flat(image, first, column, padded)
        own = T.Bind(column - self._start)
        down, across = self._workload.stride

        def pixel(chunk: Any, y: Any, x: Any, at: Any) -> Any:
            part, lane = self._part_and_lane(at)
            phase = (tirx.floormod(y, down), x % across)
            # Rows follow each other, so that positions may lie beyond the first one's end.
            position = own + tirx.floordiv(y, down) * joined.pitch + x // across
            return padded[first + chunk, part, *phase, 0, position, lane]

        return pixel

    def _part_and_lane(self, at: Any) -> tuple[Any, Any]:
        return 0, at

    @contextmanager
    def _is_row(self, row: Any) -> Iterator[None]:
        """Emit the body if ``row`` is one of the output, which tiles of one row never miss."""
        if self._scheme.reg_oh == 1:
            yield
            return
        with T.If(row < self._tiling.rows), T.Then():
            yield

    def _store_vectors(self, sums: Any, v: int, at: tuple[Any, ...]) -> None:
        image, chunk, row, column, lane = at
        vector = T.alloc_buffer((1, self._lanes), str(sums.dtype), scope="local", layout=None)
        reg_n, joined = self._scheme.reg_n, self._tiling.joined
        if joined is not None:
            with T.serial(reg_n) as j:
                y, x = (T.Bind(op(column + j, joined.pitch)) for op in _DIVISION)
                inside = x < self._workload.out_width
                if self._tiling.overhangs:
                    inside = tirx.all(inside, y < self._workload.out_height)
                with T.If(inside), T.Then():
                    T.buffer_store(vector, sums[j, v, self._every], [0, self._every])
                    self._results.store(vector, (0,), (image, chunk, y, x), lane)
            return
        columns = reg_n
        if self._tiling.overhangs:
            columns = T.min(reg_n, self._tiling.columns - column)
        for r in range(self._scheme.reg_oh):
            inside = self._is_row(row + r) if self._tiling.overhangs else nullcontext()
            with inside, T.serial(columns) as j:
                T.buffer_store(vector, sums[r * reg_n + j, v, self._every], [0, self._every])
                self._results.store(vector, (0,), (image, chunk, row + r, column + j), lane)
