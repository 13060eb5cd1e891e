"""The loop nest of a Winograd convolution: input transform, products, output transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
)
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.operators.epilogue import as_stored, buffer_readers, epilogue_value
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
        self._data, self._weights, self._output = data, weights, rest[-1]
        self._prefetches = tiling.weight_bytes > target.l2 // 2
        self._unit = target.dot_unit(self.domain.numerics)
        pads = tiling.workload.pads_with_zero_point
        self._border = rest[0] if pads else None
        self._readers = buffer_readers(tiling.workload.epilogue, rest[int(pads) : -1])

    def arithmetic(self) -> Any:
        """Return the frame that everything else stands in."""
        frames = ExitStack()
        if self.domain.is_exact:
            frames.enter_context(wrapping_arithmetic(self.lanes))
            frames.enter_context(opaque_numbers())
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
        shape = (t.points, vectors + 1, self.lanes)
        return T.alloc_buffer(shape, self.domain.numerics.sum, layout=None)

    def input(self, chunk: Any, first: Any, count: Any, result: Any, at: Any) -> None:
        """Transform register tiles ``first…`` of one vector of channels to ``result[:, at…]``."""
        t, reg_n = self.tiling, self.scheme.reg_n
        down, across = t.filters
        top, left = self.workload.padding[:2]
        each = self.workload.image_channels
        with T.serial(count) as block, T.serial(reg_n) as j:
            image, row, column = t.place(T.Bind(T.min((first + block) * reg_n + j, t.tiles - 1)))
            image, channel, exists = place_of(self.workload, image, chunk * t.width, each)
            channels = tirx.floordiv(channel, self.scheme.ic_bn)
            lane = span(tirx.floormod(channel, self.scheme.ic_bn), t.width)
            y = T.Bind(t.first(0, row, down.step) - top)
            x = T.Bind(t.first(1, column, across.step) - left)
            place = T.Bind((at + block) * t.chunks + chunk)

            def store(i: Any, k: Any, value: Any, place: Any = place, j: Any = j) -> None:
                vector = (i * across.span + k) * reg_n + j
                T.buffer_store(result, value, [place, vector, span(0, t.width)])

            def pixel(i: Any, k: Any, corner: Any = (image, channels, y, x, lane)) -> Any:
                image, channels, y, x, lane = corner
                below, beside = self.workload.dilation
                image, y = self._row(image, y + i * below, self.workload.height)
                return self._widened(self._data[image, channels, y, x + k * beside, lane])

            self._input_tile(pixel, (y, x), exists, store, lane)

    def _widened(self, pixels: Any) -> Any:
        """Return a vector of input channels as it is transformed."""
        if not self.domain.is_exact:
            return pixels
        return pixels.astype(f"{self.domain.numerics.data}x{self.tiling.width}")

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
        w, (down, across) = self.workload, self.tiling.filters
        patch = self._inputs(down.span, across.span)
        write = self._writer(patch)
        outside = splat(tirx.const(0, self.domain.numerics.data), self.tiling.width)
        if self._border is not None:
            outside = T.Bind(self._widened(self._border[lane]))
        with T.serial(down.span) as i, T.serial(across.span) as k:
            write(i, k, outside)
        top, left = w.padding[:2]
        rows, above = _overlap(down.span, w.dilation[0], w.height, y, top)
        if exists:
            rows = T.Select(tirx.all(*exists), rows, 0)
        columns, before = _overlap(across.span, w.dilation[1], w.width, x, left)
        with T.serial(rows) as i, T.serial(columns) as k:
            write(above + i, before + k, pixel(above + i, before + k))
        return patch

    def _reader(self, vectors: Any) -> Callable[..., Any]:
        return lambda *index: vectors[(*index, span(0, int(vectors.shape[-1])))]

    def _writer(self, vectors: Any) -> Callable[..., None]:
        def write(i: Any, k: Any, value: Any) -> None:
            T.buffer_store(vectors, value, [i, k, span(0, int(vectors.shape[-1]))])

        return write

    def _inputs(self, *shape: int) -> Any:
        """Allocate vectors of input channels on the stack."""
        kind = self.domain.numerics.data
        return T.alloc_buffer((*shape, self.tiling.width), kind, scope="local", layout=None)

    def _sums(self, *shape: int) -> Any:
        """Allocate vectors of sums on the stack."""
        kind = self.domain.numerics.sum
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
        with T.serial(self.tiling.points) as p, T.serial(blocks) as g, T.serial(count) as block:
            acc = self._sums(scheme.reg_n, vectors)
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

            if self._unit.by_lane:
                with T.serial(self.tiling.chunks) as chunk:
                    if self._prefetches:
                        self._prefetch(coming, block, chunk * steps)
                    for k in range(steps):
                        multiply(chunk, k)
            else:
                # Sums of integers LLVM puts in another order where it unrolls, and spills them.
                count = opaque_number(steps) if self.domain.is_exact else steps
                with T.serial(self.tiling.chunks) as chunk, T.serial(count) as k:
                    if self._prefetches:
                        self._prefetch(coming, block, chunk * steps + k)
                    multiply(chunk, k)
            for j, v in places:
                vector = self._sum(g, block * scheme.reg_n + j, v)
                T.buffer_store(sums, acc[j, v, every], [p, vector, every])

    def _tap(self, vector: Any) -> Any:
        """Bind a vector of weights."""
        return load_weights([vector], self._unit) if self.domain.is_exact else T.Bind(vector)

    def _spread(self, channels: Any) -> Any:
        """Bind the input channels of a step in all lanes."""
        if not self.domain.is_exact:
            return T.Bind(splat(channels, self.lanes))
        word = tirx.reinterpret("int32", channels)
        return load_data([word], self.domain.numerics.data, self._unit)

    def _multiplied(self, sums: Any, pixels: Any, tap: Any) -> Any:
        """Return a vector of sums with the products of a step added."""
        if not self.domain.is_exact:
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

    def output(self, group: Any, first: Any, count: Any, sums: Any) -> None:
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
            with T.serial(_within(vectors, self.tiling.oc_vectors, before)) as v:
                self._output_tile(
                    lambda p: sums[p, self._sum(g, i, v), span(0, self.lanes)],
                    (image, (before + v) * self.lanes, y, x),
                )

    def _tiles(self, start: Any, count: Any) -> Any:
        """Tiles of ``count`` register tiles from tile ``start``."""
        return T.min(count * self.scheme.reg_n, self.tiling.tiles - start)

    def _output_tile(self, product: Callable[[Any], Any], at: tuple[Any, Any, Any, Any]) -> None:
        w, (down, across) = self.workload, self.tiling.filters
        image, channel, y, x = at
        chunk = T.Bind(tirx.floordiv(channel, self.scheme.oc_bn))
        lane = T.Bind(tirx.floormod(channel, self.scheme.oc_bn))
        columns = self._sums(down.tile, across.span)
        result = self._sums(1, across.tile)
        write, write_result = self._writer(columns), self._writer(result)
        with T.serial(across.span) as k:
            values = [product(i * across.span + k) for i in range(down.span)]
            for i, value in enumerate(down.output(values)):
                write(i, k, value)
        with T.serial(_written(down.tile, w.dilation[0], w.out_height, y)) as i:
            row = [self._reader(columns)(i, k) for k in range(across.span)]
            for k, value in enumerate(across.output(row)):
                write_result(0, k, self.domain.finished(value))
            written = _written(across.tile, w.dilation[1], w.out_width, x)
            with T.serial(written) as k, T.vectorized(self.lanes) as o:
                found, row_of = self._row(image, y + i * w.dilation[0], w.out_height)
                index = (found, chunk, row_of, x + k * w.dilation[1], lane + o)
                value = epilogue_value(result[0, k, o], w, self._readers, index)
                value = as_stored(value, w, self.scheme.oc_bn, index)
                T.buffer_store(self._output, value, list(index))


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
