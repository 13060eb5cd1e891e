"""The loop nest of a Winograd convolution: products and output transform."""

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
from neocpu.schedules.convolutions.winograd.winograd_input import (
    InputTransform,
    apart,
    reader,
    writer,
)
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.operators.epilogue import buffer_readers
from neocpu.schedules.tir.bfloat16 import bits_of, rounds_vectors
from neocpu.schedules.tir.builder import prefetch_to_l2, span, splat
from neocpu.schedules.tir.opaque_number import opaque_number, opaque_numbers
from neocpu.schedules.tir.wrapping import wrapping_arithmetic
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
        self.workload, self.scheme, self.lanes = tiling.workload, tiling.scheme, tiling.lanes
        self.domain = tiling.domain
        self._weights = weights
        self._prefetches = tiling.weight_bytes > target.l2 // 2
        self._unit = target.dot_unit(self.domain.numerics)
        workload = self.workload
        pads = workload.pads_with_zero_point
        self.inputs = InputTransform(
            tiling, data, rest[0] if pads else None, rows_are_frames=rows_are_frames
        )
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

    def sums(self) -> Any:
        """Allocate a task's sums, vectors by point: they are written one after the other."""
        t = self.tiling
        vectors = t.group * t.strip_blocks * self.scheme.reg_n * self.scheme.reg_oc // self.lanes
        # Of a sum in parts, what is stored is of floats.
        kind = self.domain.results if t.parts > 1 else self.domain.numerics.sum
        return T.alloc_buffer((t.points, vectors + 1, self.lanes), kind, layout=None)

    def _sums(self, kind: str, *shape: int) -> Any:
        """Allocate vectors of sums on the stack."""
        return T.alloc_buffer((*shape, self.lanes), kind, scope="local", layout=None)

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
        write, write_result = writer(columns), writer(result)
        with T.serial(across.span) as k:
            values = [product(i * across.span + k) for i in range(down.span)]
            for i, value in enumerate(down.output(values)):
                write(i, k, value)
        with T.serial(_written(down.tile, w.dilation[0], w.out_height, y)) as i:
            row = [reader(columns)(i, k) for k in range(across.span)]
            for k, value in enumerate(across.output(row)):
                value = self.domain.finished(value)
                if scale is not None:
                    value = value * splat(scale, self.lanes)
                write_result(0, k, value)
            written = _written(across.tile, w.dilation[1], w.out_width, x)
            with T.serial(written) as k:
                found, row_of = self.inputs.row(image, y + i * w.dilation[0], w.out_height)
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
    return T.min(tile, apart(length - start, dilation))
