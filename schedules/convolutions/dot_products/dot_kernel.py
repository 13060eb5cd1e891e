"""The loop nest of a convolution by dot products: pad, multiply, store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import product
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
    missing_products,
)
from neocpu.schedules.convolutions.dot_products.dot_tiling import DotTiling
from neocpu.schedules.convolutions.vector_store import VectorStore
from neocpu.schedules.operators.epilogue import buffer_readers
from neocpu.schedules.tir.bfloat16 import bits_of, dot_products, rounds_vectors
from neocpu.schedules.tir.builder import part_start, span
from neocpu.schedules.tir.opaque_number import opaque_number, opaque_numbers
from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.layout import ceil_div

# Data of one group of products: of a chunk, row and column of what is read, and its number.
Source: TypeAlias = Callable[[Any, Any, Any, Any], Any]


class Emitter:
    """Emits the loop nest; created inside the builder's frame."""

    def __init__(self, tiling: DotTiling, data: Any, weights: Any, rest: Sequence[Any]) -> None:
        self._tiling, self._unit = tiling, tiling.unit
        self._workload, self._scheme = tiling.workload, tiling.scheme
        self._data, self._weights = map(bits_of, (data, weights))
        pads = self._workload.pads_with_zero_point
        self._border = rest[0] if pads else None
        self._results = VectorStore(
            workload=self._workload,
            block=self._scheme.oc_bn,
            lanes=self._unit.lanes,
            readers=buffer_readers(self._workload.epilogue, rest[int(pads) : -1]),
            output=bits_of(rest[-1]),
            rounds=rounds_vectors(self._workload.numerics.output, self._unit),
        )
        self._places = list(
            product(
                range(self._scheme.reg_oh), range(self._scheme.reg_n), range(self._tiling.vectors)
            )
        )
        self._every = span(0, self._unit.lanes)
        self._copied_type = "int8" if self._unit.offset else str(self._data.dtype)
        self._each = int(data.shape[1])  # chunks of an image
        moved = self._unit.offset and tiling.copies
        self._read_type = self._copied_type if moved else self._workload.numerics.data

    def emit(self) -> None:
        """Emit everything; see `neocpu.schedules.convolutions.dot_products.conv2d_dot.lower`."""
        t = self._tiling
        numbers = opaque_numbers() if t.is_short else nullcontext()
        with numbers, T.parallel(t.tasks) as task, self._instructions():
            strip = T.Bind(tirx.floormod(task, t.strips))
            group = T.Bind(tirx.floormod(tirx.floordiv(task, t.strips), t.groups))
            image = T.Bind(tirx.floordiv(task, t.strips * t.groups))
            first = T.Bind(part_start(strip, t.tiles, t.strips))
            end = T.Bind(part_start(strip + 1, t.tiles, t.strips))
            from_block = T.Bind(part_start(group, t.oc_blocks, t.groups))
            to_block = T.Bind(part_start(group + 1, t.oc_blocks, t.groups))
            top = self._first_row(first)
            source = self._padded(image, top) if t.copies else None
            with T.serial(to_block - from_block) as block:
                start = self._first_sums(from_block + block)
                with T.serial(end - first) as tile:
                    self._tiles(image, from_block + block, first + tile, top, source, start)

    def _instructions(self) -> Any:
        """Return the frame that the products' instruction needs around it."""
        unit, is_float = self._unit, self._workload.numerics.sum == "float32"
        frames = ExitStack()
        if unit.intrinsic and is_float:
            frames.enter_context(dot_products(unit.intrinsic, unit.lanes))
        frames.enter_context(self._results.frame())
        return frames

    def _first_row(self, tile: Any) -> Any:
        """First row of a row of tiles."""
        t = self._tiling
        if t.is_flat:
            return 0
        return T.Bind(_moved_back(tile, self._scheme.reg_oh, t.rows))

    def _first_sums(self, block: Any) -> Callable[[int], Any]:
        """Return what sums of each vector of channels begin with."""
        kind, lanes = self._workload.numerics.sum, self._unit.lanes
        if not self._unit.offset:
            return lambda _: T.broadcast(tirx.const(0, kind), lanes)
        shape = (self._tiling.vectors, lanes)
        start = T.alloc_buffer(shape, kind, scope="local", layout=None)
        for v in range(self._tiling.vectors):
            T.buffer_store(start, T.broadcast(tirx.const(0, kind), lanes), [v, self._every])
        kernel_h, kernel_w = self._workload.kernel
        with T.serial(self._tiling.chunks) as chunk, T.serial(kernel_h) as kh:
            with T.serial(kernel_w) as kw, T.serial(self._tiling.chunk_groups) as group:
                taps = self._taps(block, chunk, kh, kw, [group])
                for v, tap in enumerate(taps):
                    total = missing_products(start[v, self._every], tap, self._unit)
                    T.buffer_store(start, total, [v, self._every])
        return lambda v: start[v, self._every]

    def _taps(self, block: Any, chunk: Any, kh: Any, kw: Any, groups: Sequence[Any]) -> list[Any]:
        """Bind the weights of some groups of input channels, of each vector of output channels."""
        width = self._unit.lanes * self._unit.group
        return [
            load_weights(
                [
                    self._weights[block, chunk, kh, kw, group, span(v * width, width)]
                    for group in groups
                ],
                self._unit,
            )
            for v in range(self._tiling.vectors)
        ]

    def _tiles(
        self, image: Any, block: Any, tile: Any, top: Any, padded: Any, start: Callable[[int], Any]
    ) -> None:
        """Emit the register tiles of a strip's part, for one block of output channels."""
        t, w, reg_n = self._tiling, self._workload, self._scheme.reg_n
        first = self._first_chunk(block)
        if t.is_flat:
            column = T.Bind(_moved_back(tile, reg_n, t.columns))
            self._tile(image, block, 0, column, self._stored(image, first, 0, column), start)
            return
        row = self._first_row(tile)
        with T.serial(t.column_tiles) as number:
            column = T.Bind(_moved_back(number, reg_n, t.columns))
            y, x = row * w.stride[0], column * w.stride[1]
            if padded is None:
                source = self._stored(image, first, T.Bind(y), T.Bind(x))
            else:
                y = T.Bind(y - top * w.stride[0])
                source = self._copied(padded, first, y, T.Bind(x))
            self._tile(image, block, row, column, source, start)

    def _first_chunk(self, block: Any) -> Any:
        """First block of input channels of the group that a block of outputs is of."""
        w = self._workload
        if w.groups == 1:
            return 0
        group = tirx.floordiv(block * self._scheme.reg_oc, w.out_channels // w.groups)
        # Beyond the last channel there are blocks too, but no more groups.
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
        t, w, block = self._tiling, self._workload, self._scheme.ic_bn
        shape = (t.image_chunks, t.strip_rows, t.strip_columns, block)
        padded = T.alloc_buffer(shape, self._copied_type, layout=None)

        def fill(chunk: Any, row: Any, first: Any, columns: int) -> None:
            if columns:
                with T.serial(columns) as x, T.vectorized(block) as lane:
                    zero = tirx.const(0, str(self._data.dtype))
                    value = zero if self._border is None else self._border[lane]
                    T.buffer_store(padded, self._shifted(value), [chunk, row, first + x, lane])

        above, left, _, right = w.padding
        with T.serial(t.image_chunks) as chunk, T.serial(t.strip_rows) as row:
            y = T.Bind(top * w.stride[0] + row - above)
            found, own, inside = place_of(w, image, chunk, self._each)
            with T.If(tirx.all(*inside, y >= 0, y < w.height)):
                with T.Then():
                    fill(chunk, row, 0, left)
                    with T.serial(w.width) as x, T.vectorized(block) as lane:
                        value = self._data[found, own, y, x, lane]
                        place = [chunk, row, left + x, lane]
                        T.buffer_store(padded, self._shifted(value), place)
                    fill(chunk, row, left + w.width, right)
                with T.Else():
                    fill(chunk, row, 0, t.strip_columns)
        return padded

    def _shifted(self, value: Any) -> Any:
        """Return a datum as it is copied: as the instruction takes it."""
        if not self._unit.offset:
            return value
        flipped = tirx.bitwise_xor(value, tirx.const(self._unit.offset, "uint8"))
        return tirx.reinterpret(self._copied_type, flipped)

    def _tile(
        self,
        image: Any,
        block: Any,
        row: Any,
        column: Any,
        source: Source,
        start: Callable[[int], Any],
    ) -> None:
        """Compute and store one register tile."""
        s, unit = self._scheme, self._unit
        shape = (s.reg_oh, s.reg_n, self._tiling.vectors, unit.lanes)
        sums = T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)
        for place in self._places:
            T.buffer_store(sums, start(place[-1]), [*place, self._every])
        groups, unrolled = self._tiling.chunk_groups, self._tiling.unrolled_groups
        # One of these loops is there, whatever their extents, for LLVM to leave as it is.
        with self._serial(self._tiling.chunks, 1) as chunk, self._window() as taps:
            for kh, kw in taps:
                with self._serial(groups // unrolled) as g:
                    for k in range(0, unrolled, s.step_groups):
                        at = (block, chunk, kh, kw, g * unrolled + k)
                        self._multiply(sums, at, source)
        self._store(sums, image, block, row, column)

    @contextmanager
    def _window(self) -> Iterator[list[tuple[Any, Any]]]:
        """Emit what is in its body for all taps of the window, one by one or in loops."""
        unit, (kernel_h, kernel_w) = self._unit, self._workload.kernel
        if self._scheme.unroll_ker or (kernel_h, kernel_w) == (1, 1):
            yield list(product(range(kernel_h), range(kernel_w)))
            return
        # On NEON a load of one word has its address in a register: those of a row can share it.
        shared = unit.by_lane and self._tiling.data_lanes == 1 and self._tiling.is_short
        row = T.unroll if shared else self._serial
        with self._serial(kernel_h) as kh, row(kernel_w) as kw:
            yield [(kh, kw)]

    def _serial(self, extent: int, least: int = 2) -> Any:
        """Return the frame of a loop of a register tile, a loop to LLVM from an extent on."""
        opaque = self._tiling.is_short and extent >= least
        return T.serial(opaque_number(extent) if opaque else extent)

    def _multiply(self, sums: Any, at: tuple[Any, ...], source: Source) -> None:
        """Add the products of a step: of some groups of input channels at one tap."""
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

    def _store(self, sums: Any, image: Any, block: Any, row: Any, column: Any) -> None:
        """Store a register tile, but for the vectors that overhang the output's channels."""
        s, lanes = self._scheme, self._unit.lanes
        existing = ceil_div(self._workload.out_channels, s.oc_bn) * s.oc_bn
        for v in range(self._tiling.vectors):
            channel = T.Bind(block * s.reg_oc + v * lanes)
            chunk = T.Bind(tirx.floordiv(channel, s.oc_bn))
            lane = T.Bind(tirx.floormod(channel, s.oc_bn))
            if (self._tiling.oc_blocks - 1) * s.reg_oc + (v + 1) * lanes <= existing:
                self._store_vectors(sums, v, (image, chunk, row, column, lane))
                continue
            with T.If(channel < existing), T.Then():
                self._store_vectors(sums, v, (image, chunk, row, column, lane))

    def _store_vectors(self, sums: Any, v: int, at: tuple[Any, ...]) -> None:
        s, (image, chunk, row, column, lane) = self._scheme, at
        for r, j in product(range(s.reg_oh), range(s.reg_n)):
            self._results.store(sums, (r, j, v), (image, chunk, row + r, column + j), lane)


def _moved_back(number: Any, size: int, total: int) -> Any:
    """First element of a tile; the last one moves back where it would overhang."""
    first = number * size
    return T.min(first, total - size) if total % size else first
