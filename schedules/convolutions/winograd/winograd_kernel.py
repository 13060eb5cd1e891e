"""The loop nest of a Winograd convolution: input transform, products, output transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
)
from neocpu.schedules.convolutions.vector_store import VectorStore
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.operators.epilogue import buffer_readers
from neocpu.schedules.tir.bfloat16 import bits_of, rounds_vectors
from neocpu.schedules.tir.builder import prefetch_to_l2, span, splat
from neocpu.schedules.tir.opaque_number import opaque_number, opaque_numbers
from neocpu.schedules.tir.wrapping import wrapping_arithmetic
from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget


class Emitter:
    """Emits the parts of the loop nest; created inside the builder's frame."""

    def __init__(
        self,
        tiling: Tiling,
        target: CpuTarget,
        data: Any,
        weights: Any,
        rest: Sequence[Any],
        *,
        rows_are_frames: bool = False,
    ) -> None:
        self.tiling = tiling
        self._rows_are_frames = rows_are_frames
        self.workload, self.scheme, self.lanes = tiling.workload, tiling.scheme, tiling.lanes
        self.domain = tiling.domain
        self._data, self._weights = bits_of(data), weights
        self._prefetches = tiling.weight_bytes > target.l2 // 2
        self._unit = target.dot_unit(self.domain.numerics)
        workload = self.workload
        pads = workload.pads_with_zero_point
        self._border = rest[0] if pads else None
        unit = target.find_dot_unit(workload.numerics)
        self._results = VectorStore(
            workload=workload,
            block=self.scheme.oc_bn,
            lanes=self.lanes,
            readers=buffer_readers(workload.epilogue, rest[int(pads) : -1]),
            output=bits_of(rest[-1]),
            rounds=rounds_vectors(workload.numerics.output, unit),
        )

    def arithmetic(self) -> Any:
        """Return the frame that everything else stands in."""
        frames = ExitStack()
        if self.domain.is_of_integers:
            frames.enter_context(wrapping_arithmetic(self.lanes))
            frames.enter_context(opaque_numbers())
        if self.domain.is_scaled:
            frames.enter_context(scaled_integers.functions(self.tiling.width))
        frames.enter_context(self._results.frame())
        return frames

    def transformed(self, blocks: int) -> Any:
        """Allocate the transformed input of ``blocks`` register tiles.

        What is written together lies together: of a register tile and a vector of channels, the
        vectors of all points and tiles. Here and in `sums`, one vector more keeps a large power of
        two, which would map them to the same lines of the caches, from between those.
        """
        t = self.tiling
        shape = (blocks * t.chunks, t.points * self.scheme.reg_n + 1, t.width)
        return T.alloc_buffer(shape, self.domain.numerics.data, layout=None)

    def sums(self) -> Any:
        """Allocate a task's sums, vectors by point: they are written one after the other."""
        t = self.tiling
        vectors = t.group * t.strip_blocks * self.scheme.reg_n * self.scheme.reg_oc // self.lanes
        # Of a sum in parts, what is stored is of floats.
        kind = self.domain.results if t.parts > 1 else self.domain.numerics.sum
        return T.alloc_buffer((t.points, vectors + 1, self.lanes), kind, layout=None)

    def extents(self, blocks: int) -> Any:
        """Allocate what `measure` finds of the tiles of ``blocks`` register tiles, if anything."""
        if not self.domain.is_scaled:
            return None
        return T.alloc_buffer((blocks * self.scheme.reg_n,), self.domain.results, layout=None)

    def measure(self, first: Any, count: Any, extents: Any, at: Any) -> None:
        """Find what the pixels of register tiles ``first…`` extend over, for ``extents[at…]``.

        The bits of bfloat16 are in order: as int16 those of numbers that are not negative, as
        uint16 those of the others, NaN after all numbers.
        """
        t, reg_n, width = self.tiling, self.scheme.reg_n, self.tiling.width
        with T.serial(count) as block, T.serial(reg_n) as j:
            tile = T.Bind(T.min((first + block) * reg_n + j, t.tiles - 1))
            high = T.alloc_buffer((width,), "int16", scope="local", layout=None)
            low = T.alloc_buffer((width,), "uint16", scope="local", layout=None)
            every = [span(0, width)]
            for each in (high, low):
                T.buffer_store(each, splat(tirx.const(0, str(each.dtype)), width), every)
            with T.serial(t.chunks) as chunk:
                bits, (y, x), _, _ = self._pixels(tile, chunk)
                (rows, above), (columns, before) = self._existing(y, x)
                mask = self._mask(chunk)
                with T.serial(rows) as i, T.serial(columns) as k:
                    found = T.Bind(tirx.bitwise_and(bits(above + i, before + k), mask))
                    signed = tirx.reinterpret(f"int16x{width}", found)
                    T.buffer_store(high, T.max(high[tuple(every)], signed), every)
                    T.buffer_store(low, T.max(low[tuple(every)], found), every)
            found = scaled_integers.extent(high[tuple(every)], low[tuple(every)])
            T.buffer_store(extents, found, [(at + block) * reg_n + j])

    def _mask(self, chunk: Any) -> Any:
        """Bind the bits that count of a vector of channels: what pads a block may be anything."""
        width, channels = self.tiling.width, self.workload.in_channels
        every = splat(tirx.const(0xFFFF, "uint16"), width)
        if channels % width == 0:
            return every
        lanes = T.Ramp(0, 1, width)
        counts = lanes < splat(channels - chunk * width, width)
        return T.Bind(T.Select(counts, every, splat(tirx.const(0, "uint16"), width)))

    def input(self, chunk: Any, first: Any, count: Any, result: Any, at: Any, extents: Any) -> None:
        """Transform register tiles ``first…`` of one vector of channels to ``result[:, at…]``."""
        t, reg_n = self.tiling, self.scheme.reg_n
        across = t.filters[1]
        with T.serial(count) as block, T.serial(reg_n) as j:
            tile = T.Bind(T.min((first + block) * reg_n + j, t.tiles - 1))
            stored, corner, exists, lane = self._pixels(tile, chunk)
            place = T.Bind((at + block) * t.chunks + chunk)
            scale = None
            if self.domain.is_scaled:
                size = scaled_integers.steps(
                    self.scheme.tile, self.workload.kernel, self.workload.in_channels
                )
                scale = T.Bind(T.float32(size) / extents[(at + block) * reg_n + j])

            def store(
                i: Any, k: Any, value: Any, place: Any = place, j: Any = j, scale: Any = scale
            ) -> None:
                if scale is not None:
                    value = scaled_integers.rounded(value, scale)
                vector = (i * across.span + k) * reg_n + j
                T.buffer_store(result, value, [place, vector, span(0, t.width)])

            def pixel(i: Any, k: Any, stored: Callable[..., Any] = stored) -> Any:
                return self._widened(stored(i, k))

            self._input_tile(pixel, corner, exists, store, lane)

    def _pixels(self, tile: Any, chunk: Any) -> tuple[Any, tuple[Any, Any], tuple[Any, ...], Any]:
        """Return what reads a tile's pixels as they are stored, and where the first is.

        Also the conditions that its image exists, and the lanes of the vector of channels.
        """
        t, (down, across) = self.tiling, self.tiling.filters
        image, row, column = t.place(tile)
        each = self.workload.image_channels
        image, channel, exists = place_of(self.workload, image, chunk * t.width, each)
        channels = tirx.floordiv(channel, self.scheme.ic_bn)
        lane = span(tirx.floormod(channel, self.scheme.ic_bn), t.width)
        top, left = self.workload.padding[:2]
        y = T.Bind(t.first(0, row, down.step) - top)
        x = T.Bind(t.first(1, column, across.step) - left)

        def pixel(i: Any, k: Any) -> Any:
            below, beside = self.workload.dilation
            found, row_of = self._row(image, y + i * below, self.workload.height)
            return self._data[found, channels, row_of, x + k * beside, lane]

        return pixel, (y, x), exists, lane

    def _widened(self, pixels: Any) -> Any:
        """Return a vector of input channels as it is transformed."""
        if self.domain.is_scaled:
            return T.Bind(scaled_integers.widened(pixels))
        if not self.domain.is_exact:
            return pixels
        return pixels.astype(f"{self.domain.pixels}x{self.tiling.width}")

    def _row(self, image: Any, row: Any, height: int) -> tuple[Any, Any]:
        """Image and row as the buffers have them."""
        return (image * height + row, 0) if self._rows_are_frames else (image, row)

    def _input_tile(
        self,
        pixel: Callable[..., Any],
        corner: tuple[Any, Any],
        exists: tuple[Any, ...],
        store: Callable[..., None],
        lane: Any,
    ) -> None:
        """Transform the tile whose first pixel is at ``corner``, which may lie in the padding.

        So may all of its image, unless the conditions ``exists`` hold.
        """
        down, across = self.tiling.filters
        columns = self._inputs(down.span, across.span)

        def transform_columns(pixel: Callable[..., Any], store: Callable[..., None]) -> None:
            with T.serial(across.span) as k:
                for i, value in enumerate(down.input([pixel(i, k) for i in range(down.span)])):
                    store(i, k, value)

        def transform_rows(pixel: Callable[..., Any]) -> None:
            with T.serial(down.span) as i:
                for k, value in enumerate(across.input([pixel(i, k) for k in range(across.span)])):
                    store(i, k, value)

        def transform(pixel: Callable[..., Any]) -> None:
            if down.is_identity:
                transform_rows(pixel)
            elif across.is_identity:
                transform_columns(pixel, store)
            else:
                transform_columns(pixel, self._writer(columns))

        conditions = (*exists, *self._inside(*corner))
        if not conditions:
            transform(pixel)
        else:
            with T.If(tirx.all(*conditions)):
                with T.Then():
                    transform(pixel)
                with T.Else():
                    transform(self._reader(self._padded_patch(pixel, exists, *corner, lane)))
        if not down.is_identity and not across.is_identity:
            transform_rows(self._reader(columns))

    def _padded_patch(
        self, pixel: Callable[..., Any], exists: tuple[Any, ...], y: Any, x: Any, lane: Any
    ) -> Any:
        """Copy the pixels a tile reads, zeros or the zero point outside the image."""
        down, across = self.tiling.filters
        patch = self._inputs(down.span, across.span)
        write = self._writer(patch)
        outside = splat(tirx.const(0, self.domain.pixels), self.tiling.width)
        if self._border is not None:
            outside = T.Bind(self._widened(self._border[lane]))
        with T.serial(down.span) as i, T.serial(across.span) as k:
            write(i, k, outside)
        (rows, above), (columns, before) = self._existing(y, x)
        if exists:
            rows = T.Select(tirx.all(*exists), rows, 0)
        with T.serial(rows) as i, T.serial(columns) as k:
            write(above + i, before + k, pixel(above + i, before + k))
        return patch

    def _existing(self, y: Any, x: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """How many rows and columns of a tile the image has, and how many it lacks before."""
        w, (down, across) = self.workload, self.tiling.filters
        top, left = w.padding[:2]
        rows = _overlap(down.span, w.dilation[0], w.height, y, top)
        return rows, _overlap(across.span, w.dilation[1], w.width, x, left)

    def _reader(self, vectors: Any) -> Callable[..., Any]:
        return lambda *index: vectors[(*index, span(0, int(vectors.shape[-1])))]

    def _writer(self, vectors: Any) -> Callable[..., None]:
        def write(i: Any, k: Any, value: Any) -> None:
            T.buffer_store(vectors, value, [i, k, span(0, int(vectors.shape[-1]))])

        return write

    def _inputs(self, *shape: int) -> Any:
        """Allocate vectors of input channels on the stack."""
        kind = self.domain.pixels
        return T.alloc_buffer((*shape, self.tiling.width), kind, scope="local", layout=None)

    def _sums(self, kind: str, *shape: int) -> Any:
        """Allocate vectors of sums on the stack."""
        return T.alloc_buffer((*shape, self.lanes), kind, scope="local", layout=None)

    def _inside(self, y: Any, x: Any) -> list[Any]:
        """Conditions that a tile's pixels all lie in the image; none if those of every tile do."""
        w, t = self.workload, self.tiling
        down, across = t.filters
        conditions = []
        for axis, position, length, line in ((0, y, w.height, down), (1, x, w.width, across)):
            before, reach = w.padding[axis], (line.span - 1) * w.dilation[axis] + 1
            if before:
                conditions.append(position >= 0)
            if t.last(axis, line.step) - before + reach > length:
                conditions.append(position + reach <= length)
        return conditions

    def products(self, group: Any, count: Any, transformed: Any, at: Any, sums: Any) -> None:
        """Multiply register tiles ``at…`` of ``transformed`` with a group of output channels."""
        scheme, lanes, every = self.scheme, self.lanes, span(0, self.lanes)
        vectors = scheme.reg_oc // lanes
        places = [(j, v) for j in range(scheme.reg_n) for v in range(vectors)]
        first, blocks = self._group(group)
        every_part = T.serial(self.tiling.parts) if self.tiling.parts > 1 else nullcontext(None)
        with (
            T.serial(self.tiling.points) as p,
            T.serial(blocks) as g,
            T.serial(count) as block,
            every_part as part,
        ):
            acc = self._sums(self.domain.numerics.sum, scheme.reg_n, vectors)
            zero = splat(tirx.const(0, self.domain.numerics.sum), lanes)
            for j, v in places:
                T.buffer_store(acc, zero, [j, v, every])
            is_last = g + 1 == blocks
            coming = tirx.Select(is_last, p + 1, p), tirx.Select(is_last, first, first + g + 1)

            group, steps = self.domain.group, self.tiling.chunk_steps
            width = lanes * group

            def multiply(chunk: Any, k: Any) -> None:
                step = chunk * steps + k
                taps = [
                    self._tap(self._weights[p, first + g, step, span(v * width, width)])
                    for v in range(vectors)
                ]
                for j in range(scheme.reg_n):
                    place = (at + block) * self.tiling.chunks + chunk
                    channels = span(k * group, group)
                    pixels = self._spread(transformed[place, p * scheme.reg_n + j, channels])
                    for v, tap in enumerate(taps):
                        total = self._multiplied(acc[j, v, every], pixels, tap)
                        T.buffer_store(acc, total, [j, v, every])

            start, chunks = self._part(part)
            if self._unit.by_lane:
                with T.serial(chunks) as chunk:
                    if self._prefetches:
                        self._prefetch(coming, block, (start + chunk) * steps)
                    for k in range(steps):
                        multiply(start + chunk, k)
            else:
                # Sums of integers LLVM puts in another order where it unrolls, and spills them.
                count = opaque_number(steps) if self.domain.is_of_integers else steps
                with T.serial(chunks) as chunk, T.serial(count) as k:
                    if self._prefetches:
                        self._prefetch(coming, block, (start + chunk) * steps + k)
                    multiply(start + chunk, k)

            numbers = [self._sum(g, block * scheme.reg_n + j, v) for j, v in places]
            self._store_sums(acc, places, sums, [(p, number) for number in numbers], part)

    def _store_sums(
        self,
        acc: Any,
        places: Sequence[tuple[int, int]],
        sums: Any,
        stored: Sequence[tuple[Any, Any]],
        part: Any,
    ) -> None:
        """Store a register tile's sums; those of further parts are added to what is there."""
        every, kind = span(0, self.lanes), f"{sums.dtype}x{self.lanes}"

        def store(*, added: bool) -> None:
            for place, (p, vector) in zip(places, stored, strict=True):
                total = acc[(*place, every)]
                if part is not None:
                    total = total.astype(kind)
                if added:
                    total = sums[p, vector, every] + total
                T.buffer_store(sums, total, [p, vector, every])

        if part is None:
            store(added=False)
            return
        with T.If(part == 0):
            with T.Then():
                store(added=False)
            with T.Else():
                store(added=True)

    def _part(self, part: Any) -> tuple[Any, Any]:
        """First vector of input channels of a part of the sums, and how many it has."""
        t = self.tiling
        if part is None:
            return 0, t.chunks
        start = T.Bind(part * t.part_chunks)
        return start, _within(t.part_chunks, t.chunks, start)

    def _tap(self, vector: Any) -> Any:
        """Bind a vector of weights."""
        is_plain = not self.domain.is_of_integers
        return T.Bind(vector) if is_plain else load_weights([vector], self._unit)

    def _spread(self, channels: Any) -> Any:
        """Bind the input channels of a step in all lanes."""
        if not self.domain.is_of_integers:
            return T.Bind(splat(channels, self.lanes))
        word = tirx.reinterpret("int32", channels)
        return load_data([word], self.domain.numerics.data, self._unit)

    def _multiplied(self, sums: Any, pixels: Any, tap: Any) -> Any:
        """Return a vector of sums with the products of a step added."""
        if not self.domain.is_of_integers:
            return sums + pixels * tap
        return add_products(sums, pixels, tap, self._unit)

    def _group(self, group: Any) -> tuple[Any, Any]:
        """First block of output channels of a group, and how many it has."""
        t = self.tiling
        first = T.Bind(group * t.group)
        return first, _within(t.group, t.oc_blocks, first)

    def _sum(self, g: Any, tile: Any, v: Any) -> Any:
        """Position of a vector of sums among those of its point."""
        tiles = self.tiling.strip_blocks * self.scheme.reg_n
        return (g * tiles + tile) * (self.scheme.reg_oc // self.lanes) + v

    def _prefetch(self, coming: tuple[Any, Any], block: Any, step: Any) -> None:
        """Ask for the weights that come next, while these are in use: a vector or two a step.

        Where so few tiles share the weights that a step would have to ask for more, the processor's
        own prefetching of the one stream does better.
        """
        steps = self.tiling.chunks * self.tiling.chunk_steps
        vectors = self.scheme.reg_oc // self.lanes
        each = ceil_div(vectors, self.tiling.strip_blocks)
        if each > 2:
            return
        turn = tirx.floormod(block, vectors) if each == 1 else block * each
        for extra in range(each):
            ahead = ((turn + extra) * steps + step) * self.lanes * self.domain.group
            T.evaluate(prefetch_to_l2(self._weights, [*coming, 0, ahead]))

    def output(self, group: Any, first: Any, count: Any, sums: Any, extents: Any, at: Any) -> None:
        """Transform the sums of register tiles ``first…`` back and store them."""
        scheme, vectors = self.scheme, self.scheme.reg_oc // self.lanes
        down, across = self.tiling.filters
        start = first * scheme.reg_n
        oc_first, oc_count = self._group(group)
        with T.serial(oc_count) as g, T.serial(self._tiles(start, count)) as i:
            image, row, column = self.tiling.place(start + i)
            y = T.Bind(self.tiling.first(0, row, down.tile))
            x = T.Bind(self.tiling.first(1, column, across.tile))
            before = T.Bind((oc_first + g) * vectors)
            scale = None if extents is None else T.Bind(extents[at * scheme.reg_n + i])
            with T.serial(_within(vectors, self.tiling.oc_vectors, before)) as v:

                def product(p: Any, g: Any = g, i: Any = i, v: Any = v) -> Any:
                    found = sums[p, self._sum(g, i, v), span(0, self.lanes)]
                    return found if extents is None else self._real(found, p, oc_first + g, v)

                self._output_tile(product, (image, (before + v) * self.lanes, y, x), scale)

    def _real(self, sums: Any, p: Any, block: Any, v: Any) -> Any:
        """Return a vector of sums of integers as what they stand for, but for a tile's extent."""
        kind, width = f"{self.domain.results}x{self.lanes}", self.lanes * self.domain.group
        last = int(self._weights.shape[2]) - 1
        scales = self._weights[p, block, last, span(v * width, width)]
        return sums.astype(kind) * tirx.reinterpret(kind, scales)

    def _tiles(self, start: Any, count: Any) -> Any:
        """Tiles of ``count`` register tiles from tile ``start``."""
        return T.min(count * self.scheme.reg_n, self.tiling.tiles - start)

    def _output_tile(
        self, product: Callable[[Any], Any], at: tuple[Any, Any, Any, Any], scale: Any
    ) -> None:
        w, (down, across) = self.workload, self.tiling.filters
        image, channel, y, x = at
        chunk = T.Bind(tirx.floordiv(channel, self.scheme.oc_bn))
        lane = T.Bind(tirx.floormod(channel, self.scheme.oc_bn))
        columns = self._sums(self.domain.results, down.tile, across.span)
        result = self._sums(self.domain.results, 1, across.tile)
        write, write_result = self._writer(columns), self._writer(result)
        with T.serial(across.span) as k:
            values = [product(i * across.span + k) for i in range(down.span)]
            for i, value in enumerate(down.output(values)):
                write(i, k, value)
        with T.serial(_written(down.tile, w.dilation[0], w.out_height, y)) as i:
            row = [self._reader(columns)(i, k) for k in range(across.span)]
            for k, value in enumerate(across.output(row)):
                value = self.domain.finished(value)
                if scale is not None:
                    value = value * splat(scale, self.lanes)
                write_result(0, k, value)
            written = _written(across.tile, w.dilation[1], w.out_width, x)
            with T.serial(written) as k:
                found, row_of = self._row(image, y + i * w.dilation[0], w.out_height)
                at = (found, chunk, row_of, x + k * w.dilation[1])
                self._results.store(result, (0, k), at, lane)


def frames_as_rows(buffer: Any) -> Any:
    """Return frames, ``(V * D, C/x, H, W, x)``, as images of one row each."""
    n, chunks, height, width, block = (int(extent) for extent in buffer.shape)
    shape, dtype = (n, chunks, 1, height * width, block), str(buffer.dtype)
    return T.decl_buffer(shape, dtype, data=buffer.data, layout=None)


def _within(tile: int, length: int, start: Any) -> Any:
    """Pixels, or vectors, of a tile that starts at ``start`` which the output has."""
    return tile if length % tile == 0 else T.min(tile, length - start)


def _written(tile: int, dilation: int, length: int, start: Any) -> Any:
    """Pixels, ``dilation`` apart, of a tile that starts at ``start`` which the output has."""
    if dilation == 1 or length % (tile * dilation) == 0:
        return _within(tile, length // dilation, start)
    return T.min(tile, _apart(length - start, dilation))


def _overlap(count: int, dilation: int, length: int, start: Any, padding: int) -> tuple[Any, Any]:
    """How many of ``count`` pixels from ``start`` the image has, and how many it lacks before."""
    # TVM cannot generate every division of what may be negative: ``start``, by the padding.
    lines = ceil_div(padding, dilation)
    begun = start if dilation == 1 else tirx.floordiv(start + lines * dilation, dilation) - lines
    before = T.Bind(T.max(-begun, 0))
    return T.max(T.min(count, _apart(length - start, dilation)) - before, 0), before


def _apart(length: Any, dilation: int) -> Any:
    """How many pixels, ``dilation`` apart, the first so many hold: none below zero."""
    if dilation == 1:
        return length
    return tirx.floordiv(T.max(length, 0) + (dilation - 1), dilation)
