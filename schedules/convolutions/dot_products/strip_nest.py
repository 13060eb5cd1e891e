"""The loops around register tiles of products, and register tiles of dot products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import product
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    Operand,
    add_products,
    load_data,
    load_weights,
    missing_products,
)
from neocpu.schedules.convolutions.dot_products.dot_tiling import DotTiling
from neocpu.schedules.convolutions.kernel_nest import KernelNest, moved_back
from neocpu.schedules.tir.bfloat16 import dot_products
from neocpu.schedules.tir.builder import known, part_start, span
from neocpu.schedules.tir.llvm_text import opaque_number, opaque_numbers
from neocpu.schedules.vocabulary.frame_reads import place_of

# Returns the data of a group of products: by chunk, row and column of the input, and its number.
Source: TypeAlias = Callable[[Any, Any, Any, Any], Any]
Start: TypeAlias = Callable[[int], Any]  # the initial sums of a vector of channels
Tile: TypeAlias = tuple[Any, Any, Any, Any]  # image, block of channels, row and column


class StripNest(KernelNest, ABC):
    """An emitter of tasks, strips, the border and stores; subclasses compute register tiles."""

    def __init__(self, tiling: DotTiling, data: Any, weights: Any, rest: Sequence[Any]) -> None:
        super().__init__(tiling.workload, tiling.scheme, tiling.unit, data, weights, rest)
        # Tiles move back, but not before the beginning of the output.
        assert tiling.overhangs or tiling.scheme.reg_oh <= tiling.rows, tiling.scheme
        assert tiling.overhangs or tiling.scheme.reg_n <= tiling.columns, tiling.scheme
        self._tiling = tiling
        self._copied_type = "int8" if self._unit.offset else str(self._data.dtype)
        self._each = int(data.shape[1])  # chunks of an image
        moved = self._unit.offset and tiling.copies
        self._read_type = self._copied_type if moved else self._workload.numerics.data

    @abstractmethod
    def _tile(self, at: Tile, source: Source, start: Start) -> None:
        """Compute and store one register tile."""

    def _first_sums(self, block: Any) -> Start:
        """Return the function of the initial sums of each vector of channels."""
        return lambda _: T.broadcast(tirx.const(0, self._workload.numerics.sum), self._lanes)

    def _instructions(self) -> ExitStack:
        """Return the frame that the instruction of the products needs around it."""
        frames = ExitStack()
        if self._unit.intrinsic and self._workload.numerics.sum == "float32":
            frames.enter_context(dot_products(self._unit.intrinsic, self._lanes))
        frames.enter_context(self._results.frame())
        return frames

    def _products(self) -> AbstractContextManager[None]:
        """Return a context for emitting the products, after all copies; by default an empty one."""
        return nullcontext()

    def emit(self) -> None:
        """Emit the whole kernel; see the template's ``lower``."""
        t = self._tiling
        numbers = opaque_numbers() if t.is_short else nullcontext()
        with numbers, T.parallel(t.tasks) as task, self._instructions():
            # At some sizes there is one strip, at others one group.
            strips, groups = known(t.strips), known(t.groups)
            strip = T.Bind(tirx.floormod(task, strips))
            group = T.Bind(tirx.floormod(tirx.floordiv(task, strips), groups))
            image = T.Bind(tirx.floordiv(task, strips * groups))
            first = T.Bind(part_start(strip, t.tiles, strips))
            end = T.Bind(part_start(strip + 1, t.tiles, strips))
            from_block = T.Bind(part_start(group, t.oc_blocks, groups))
            to_block = T.Bind(part_start(group + 1, t.oc_blocks, groups))
            self._first_tile = first
            top = self._first_row(first)
            source = self._copies(image, first, top)
            with self._products(), T.serial(to_block - from_block) as block:
                start = self._first_sums(from_block + block)
                with T.serial(end - first) as tile:
                    self._tiles(image, from_block + block, first + tile, top, source, start)

    def _first_row(self, tile: Any) -> Any:
        t = self._tiling
        if t.is_flat:
            return 0
        return T.Bind(self._begin(tile, self._scheme.reg_oh, t.rows))

    def _begin(self, tile: Any, size: int, total: int) -> Any:
        """Return the first row or column of a register tile."""
        return tile * size if self._tiling.overhangs else moved_back(tile, size, total)

    def _tiles(
        self, image: Any, block: Any, tile: Any, top: Any, padded: Any, start: Start
    ) -> None:
        """Emit the register tiles of a strip's part, for one block of output channels."""
        t, w, reg_n = self._tiling, self._workload, self._scheme.reg_n
        first = self._first_chunk(block)
        self._visit: Any = tile - self._first_tile  # of the strip's register tiles
        if t.is_flat:
            column = T.Bind(self._begin(tile, reg_n, t.columns))
            self._tile((image, block, 0, column), self._flat(image, first, column, padded), start)
            return
        row = self._first_row(tile)
        with T.serial(t.column_tiles) as number:
            self._visit = (tile - self._first_tile) * t.column_tiles + number
            column = T.Bind(self._begin(number, reg_n, t.columns))
            y, x = row * w.stride[0], column * w.stride[1]
            if padded is None:
                source = self._stored(image, first, T.Bind(y), T.Bind(x))
            else:
                y = T.Bind(y - top * w.stride[0])
                source = self._copied(padded, first, y, T.Bind(x))
            self._tile((image, block, row, column), source, start)

    def _copies(self, image: Any, tile: Any, top: Any) -> Any:
        """Copy a strip's input, from its first tile on, if it cannot be read in place."""
        return self._padded(image, top) if self._tiling.copies else None

    def _flat(self, image: Any, first: Any, column: Any, padded: Any) -> Source:
        """Return the pixels from ``first`` on, for an image that forms one row."""
        return self._stored(image, first, 0, column)

    def _first_chunk(self, block: Any) -> Any:
        """Return the first block of input channels of the group of a block of outputs."""
        w = self._workload
        if w.groups == 1:
            return 0
        group = tirx.floordiv(block * self._scheme.reg_oc, w.out_channels // w.groups)
        # There are blocks beyond the last channel, but no groups.
        return T.Bind(T.min(group, w.groups - 1) * self._tiling.chunks)

    def _stored(self, image: Any, first: Any, top: Any, left: Any) -> Source:
        def pixel(chunk: Any, y: Any, x: Any, at: Any) -> Any:
            found, own, _ = place_of(self._workload, image, first + chunk, self._each)
            return self._data[found, own, top + y, left + x, at]

        return pixel

    def _copied(self, padded: Any, first: Any, top: Any, left: Any) -> Source:
        return lambda chunk, y, x, at: padded[first + chunk, top + y, left + x, at]

    def _padded(self, image: Any, top: Any) -> Any:
        """Copy the input rows of a strip whose first output row is ``top``, with the border."""
        t, w = self._tiling, self._workload
        padded = self._strip()

        def fill(chunk: Any, row: Any, first: Any, columns: int) -> None:
            if columns:
                with T.serial(columns) as x:
                    self._copy(padded, (chunk, row, first + x), self._outside)

        above, left, _, right = w.padding
        with T.serial(t.image_chunks) as chunk, T.serial(t.strip_rows) as row:
            y = T.Bind(top * w.stride[0] + row - above)
            found, own, inside = place_of(w, image, chunk, self._each)
            with T.If(tirx.all(*inside, y >= 0, y < w.height)):
                with T.Then():
                    fill(chunk, row, 0, left)
                    with T.serial(w.width) as x:
                        self._copy(
                            padded,
                            (chunk, row, left + x),
                            lambda lane: self._data[found, own, y, x, lane],
                        )
                    fill(chunk, row, left + w.width, right)
                with T.Else():
                    fill(chunk, row, 0, t.strip_columns)
        return padded

    def _strip(self) -> Any:
        t = self._tiling
        shape = (t.image_chunks, t.strip_rows, t.strip_columns, self._scheme.ic_bn)
        return T.alloc_buffer(shape, self._copied_type, layout=None)

    def _copy(self, padded: Any, at: tuple[Any, ...], value: Callable[[Any], Any]) -> None:
        with T.vectorized(self._scheme.ic_bn) as lane:
            T.buffer_store(padded, self._shifted(value(lane)), [*at, lane])

    def _outside(self, lane: Any) -> Any:
        return tirx.const(0, str(self._data.dtype)) if self._border is None else self._border[lane]

    def _shifted(self, value: Any) -> Any:
        """Return a value of the data in the form that the instruction takes."""
        if not self._unit.offset:
            return value
        flipped = tirx.bitwise_xor(value, tirx.const(self._unit.offset, "uint8"))
        return tirx.reinterpret(self._copied_type, flipped)

    @contextmanager
    def _window(self) -> Iterator[list[tuple[Any, Any]]]:
        """Emit the body for all taps of the window, unrolled or in loops."""
        unit, (kernel_h, kernel_w) = self._unit, self._workload.kernel
        if self._scheme.unroll_ker or (kernel_h, kernel_w) == (1, 1):
            yield list(product(range(kernel_h), range(kernel_w)))
            return
        # On NEON a word's load needs its address in a register, which the loads of a row can share.
        shared = unit.by_lane and self._tiling.data_lanes == 1 and self._tiling.is_short
        row = T.unroll if shared else self._serial
        with self._serial(kernel_h) as kh, row(kernel_w) as kw:
            yield [(kh, kw)]

    @contextmanager
    def _rows(self) -> Iterator[Sequence[Any]]:
        """Emit the body for all rows of the window, unrolled or in a loop."""
        if self._scheme.unroll_ker or self._workload.kernel[0] == 1:
            yield range(self._workload.kernel[0])
            return
        with self._serial(self._workload.kernel[0]) as kh:
            yield [kh]

    def _serial(self, extent: int, least: int = 2) -> Any:
        """Return the frame of a register tile's loop; LLVM keeps the loop from ``least`` on."""
        opaque = self._tiling.is_short and extent >= least
        return T.serial(opaque_number(extent) if opaque else extent)

    def _store(self, sums: Any, at: Tile) -> None:
        image, block, row, column = at
        s = self._scheme
        self._store_existing(
            self._tiling.oc_blocks,
            lambda v: T.Bind(block * s.reg_oc + v * self._lanes),
            lambda v, chunk, lane: self._store_vectors(sums, v, (image, chunk, row, column, lane)),
        )

    def _store_vectors(self, sums: Any, v: int, at: tuple[Any, ...]) -> None:
        s, (image, chunk, row, column, lane) = self._scheme, at
        for r, j in product(range(s.reg_oh), range(s.reg_n)):
            self._results.store(sums, (r, j, v), (image, chunk, row + r, column + j), lane)


class DotNest(StripNest):
    """Register tiles of vectors of sums, to which an instruction or a sequence adds products."""

    def _first_sums(self, block: Any) -> Start:
        zeros = super()._first_sums(block)
        if not self._unit.offset:
            return zeros
        shape = (self._vectors, self._lanes)
        start = T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)
        for v in range(self._vectors):
            T.buffer_store(start, zeros(v), [v, self._every])
        kernel_h, kernel_w = self._workload.kernel
        with T.serial(self._tiling.chunks) as chunk, T.serial(kernel_h) as kh:
            with T.serial(kernel_w) as kw, T.serial(self._tiling.chunk_groups) as group:
                taps = self._taps(block, chunk, kh, kw, [group])
                for v, tap in enumerate(taps):
                    total = missing_products(start[v, self._every], tap, self._unit)
                    T.buffer_store(start, total, [v, self._every])
        return lambda v: start[v, self._every]

    def _taps(self, block: Any, chunk: Any, kh: Any, kw: Any, groups: Sequence[Any]) -> list[Any]:
        width = self._lanes * self._unit.group

        def taps(v: int) -> Operand:
            lanes = span(v * width, width)
            return load_weights(
                [self._weights[block, chunk, kh, kw, group, lanes] for group in groups], self._unit
            )

        return [taps(v) for v in range(self._vectors)]

    def _tile(self, at: Tile, source: Source, start: Start) -> None:
        s = self._scheme
        shape = (s.reg_oh, s.reg_n, self._vectors, self._lanes)
        sums = T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)
        for place in product(*map(range, shape[:-1])):
            T.buffer_store(sums, start(place[-1]), [*place, self._every])
        groups, unrolled = self._tiling.chunk_groups, self._tiling.unrolled_groups
        # One of these loops always exists, so that LLVM keeps it.
        with self._serial(self._tiling.chunks, 1) as chunk, self._window() as taps:
            for kh, kw in taps:
                with self._serial(groups // unrolled) as g:
                    for k in range(0, unrolled, s.step_groups):
                        step = (at[1], chunk, kh, kw, g * unrolled + k)
                        self._multiply(sums, step, source)
        self._store(sums, at)

    def _multiply(self, sums: Any, at: tuple[Any, ...], source: Source) -> None:
        w, unit = self._workload, self._unit
        block, chunk, kh, kw, first = at
        groups = [first + step for step in range(self._scheme.step_groups)]
        taps = self._taps(block, chunk, kh, kw, groups)
        for r, j in product(range(self._scheme.reg_oh), range(self._scheme.reg_n)):
            y = r * w.stride[0] + kh * w.dilation[0]
            x = j * w.stride[1] + kw * w.dilation[1]
            words = [
                tirx.reinterpret("int32", source(chunk, y, x, span(g * unit.group, unit.group)))
                for g in groups
            ]
            pixels = load_data(words, self._read_type, unit)
            for v, tap in enumerate(taps):
                place = [r, j, v, self._every]
                total = add_products(sums[r, j, v, self._every], pixels, tap, unit)
                T.buffer_store(sums, total, place)
