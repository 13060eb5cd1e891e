"""The loop nest of a Winograd convolution: products and output transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import zip_longest
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
)
from neocpu.schedules.convolutions.kernel_nest import VectorStore
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.edge_tiles import Region, register_tiles
from neocpu.schedules.convolutions.winograd.weight_transform import MadeWeights, WeightTransform
from neocpu.schedules.convolutions.winograd.winograd_input import (
    InputTransform,
    reader,
    within,
    writer,
    written,
)
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.tir.builder import prefetch_to_l2, span, splat
from neocpu.schedules.tir.llvm_text import (
    Wrapping,
    opaque_number,
    opaque_numbers,
    wrapping_arithmetic,
)
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

Reader: TypeAlias = Callable[..., Any]
Places: TypeAlias = list[tuple[Any, Any]]


class Emitter:
    """An emitter of the parts of the loop nest, created inside the builder's frame."""

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
        self._prefetches = tiling.weight_bytes > target.l2 // 2 and not tiling.on_the_fly
        self._unit = target.dot_unit(self.domain.numerics)
        workload = self.workload
        pads = workload.pads_with_zero_point
        self.inputs = InputTransform(
            tiling, data, rest[0] if pads else None, rows_are_frames=rows_are_frames
        )
        unit = target.find_dot_unit(workload.numerics)
        self._results = VectorStore.after_epilogue(
            workload, self.scheme.oc_bn, self.lanes, rest[int(pads) :], unit
        )

    def arithmetic(self) -> Any:
        """Return the frame around everything else."""
        frames = ExitStack()
        if self.domain.is_of_integers:
            frames.enter_context(wrapping_arithmetic(self.lanes))
            frames.enter_context(opaque_numbers())
        if self.domain.is_scaled:
            frames.enter_context(scaled_integers.functions(self.tiling.width))
        frames.enter_context(self._results.frame())
        return frames

    def sums(self) -> Any:
        """Allocate a task's sums as vectors by point, written one after the other."""
        t = self.tiling
        vectors = t.group * t.strip_tiles * self.scheme.reg_oc // self.lanes
        # For a sum in parts, the stored values are those that are transformed back.
        kind = self.domain.results if t.parts > 1 else self.domain.numerics.sum
        return T.alloc_buffer((t.points, vectors + 1, self.lanes), kind, layout=None)

    def _sums(self, kind: str, *shape: int) -> Any:
        return T.alloc_buffer((*shape, self.lanes), kind, scope="local", layout=None)

    def products(self, group: Any, count: Any, transformed: Any, at: Any, sums: Any) -> None:
        """Multiply register tiles ``at…`` of ``transformed`` with a group of output channels."""
        reg_n, chunks = self.scheme.reg_n, self.tiling.chunks
        first, blocks = self._group(group)
        with (
            self._transformed_weights(first, blocks) as these,
            T.serial(self.tiling.points) as p,
            self._blocks(these, blocks) as g,
            T.serial(count) as block,
            self._parts(these) as part,
        ):

            def pixels(chunk: Any, j: int, channels: Any) -> Any:
                return transformed[(at + block) * chunks + chunk, p * reg_n + j, channels]

            coming = self._coming(p, p + 1, g, first, blocks), block, self.tiling.strip_blocks
            weights = self._weights_at(these, p, first + g)
            acc, places = self._register_tile(reg_n, pixels, weights, coming, part)
            numbers = [self._sum(g, block * reg_n + j, v) for j, v in places]
            self._store_sums(acc, places, sums, [(p, number) for number in numbers], part)

    def _coming(self, p: Any, further: Any, g: Any, first: Any, blocks: Any) -> tuple[Any, Any]:
        """Return the point and block of the weights after block ``g`` of a group at point ``p``."""
        is_last = g + 1 == blocks
        return tirx.Select(is_last, further, p), tirx.Select(is_last, first, first + g + 1)

    def edged_products(self, group: Any, transformed: Any, sums: Any) -> None:
        """Multiply all regions' tiles with a group of output channels, point by point."""
        t = self.tiling
        assert t.edges is not None
        first, blocks = self._group(group)
        with self._transformed_weights(first, blocks) as these:
            for points, following in zip_longest(t.edges.classes, t.edges.classes[1:]):
                count, reg_n = register_tiles(points.tiles, self.scheme.reg_n)
                then = t.points if following is None else following.point(0)
                with (
                    T.serial(points.count) as number,
                    self._blocks(these, blocks) as g,
                    T.serial(count) as block,
                ):
                    p = T.Bind(points.point(number))
                    start = points.first + T.min(block * reg_n, points.tiles - reg_n)

                    def pixels(
                        chunk: Any, j: int, channels: Any, p: Any = p, start: Any = start
                    ) -> Any:
                        return transformed[chunk, p * t.tiles + start + j, channels]

                    is_end = number + 1 == points.count
                    further = tirx.Select(is_end, then, points.point(number + 1))
                    coming = self._coming(p, further, g, first, blocks), block, count
                    weights = self._weights_at(these, p, first + g)
                    acc, places = self._register_tile(reg_n, pixels, weights, coming, None)
                    numbers = [self._sum(g, start + j, v) for j, v in places]
                    self._store_sums(acc, places, sums, [(p, n) for n in numbers], None)

    @contextmanager
    def _transformed_weights(self, first: Any, blocks: Any) -> Iterator[MadeWeights | None]:
        """Yield transformed weights, block by block and part by part, or None if stored."""
        if not self.tiling.on_the_fly:
            yield None
            return
        made, steps = WeightTransform(self.tiling, self._weights), self.tiling.chunk_steps
        with T.serial(blocks) as g, self._parts(None) as part:
            start, chunks = self._part(part)
            made.transform(first + g, start * steps, chunks * steps)
            yield MadeWeights(made, start * steps, g, part)

    def _blocks(self, these: MadeWeights | None, blocks: Any) -> Any:
        """Return the frame of a loop over blocks of output channels, or of the single block."""
        return T.serial(blocks) if these is None else nullcontext(these.block)

    def _parts(self, these: MadeWeights | None) -> Any:
        """Return the frame of a loop over parts of the sums, or of the single part."""
        if these is not None:
            return nullcontext(these.part)
        return T.serial(self.tiling.parts) if self.tiling.parts > 1 else nullcontext(None)

    def _weights_at(self, these: MadeWeights | None, point: Any, block: Any) -> Reader:
        """Return a function that reads the weights of a point and a block, by step and vector."""
        if these is not None:
            return lambda step, v: these.vector(point, step, v)
        width = self.lanes * self.domain.group
        return lambda step, v: self._weights[point, block, step, span(v * width, width)]

    def _register_tile(
        self, reg_n: int, pixels: Reader, weights: Reader, coming: Any, part: Any
    ) -> tuple[Any, Places]:
        """Add up the products of ``reg_n`` tiles and a block of output channels.

        ``pixels`` takes a vector of input channels, the tile, and the channels within the vector;
        ``weights`` takes a step and a vector's number. ``coming`` has the point and block of the
        next weights, the number of this register tile, and that of all. Return the accumulators and
        their indices.
        """
        lanes, every = self.lanes, span(0, self.lanes)
        vectors = self.scheme.reg_oc // lanes
        places = [(j, v) for j in range(reg_n) for v in range(vectors)]
        acc = self._sums(self.domain.numerics.sum, reg_n, vectors)
        zero = splat(tirx.const(0, self.domain.numerics.sum), lanes)
        for j, v in places:
            T.buffer_store(acc, zero, [j, v, every])
        group, steps = self.domain.group, self.tiling.chunk_steps

        def multiply(chunk: Any, k: Any) -> None:
            step = chunk * steps + k
            taps = [self._tap(weights(step, v)) for v in range(vectors)]
            for j in range(reg_n):
                spread = self._spread(pixels(chunk, j, span(k * group, group)))
                for v, tap in enumerate(taps):
                    total = self._multiplied(acc[j, v, every], spread, tap)
                    T.buffer_store(acc, total, [j, v, every])

        start, chunks = self._part(part)
        if self._unit.by_lane:
            with T.serial(chunks) as chunk:
                if self._prefetches:
                    self._prefetch(coming, (start + chunk) * steps)
                for k in range(steps):
                    multiply(start + chunk, k)
        else:
            # LLVM reorders sums of integers when it unrolls, and spills them.
            count = opaque_number(steps) if self.domain.is_of_integers else steps
            with T.serial(chunks) as chunk, T.serial(count) as k:
                if self._prefetches:
                    self._prefetch(coming, (start + chunk) * steps + k)
                multiply(start + chunk, k)
        return acc, places

    def _store_sums(self, acc: Any, places: Places, sums: Any, stored: Places, part: Any) -> None:
        """Store a register tile's sums; those of later parts are added to the stored ones."""
        every, kind = span(0, self.lanes), f"{sums.dtype}x{self.lanes}"

        def store(*, added: bool) -> None:
            for place, (p, vector) in zip(places, stored, strict=True):
                total = acc[(*place, every)]
                if part is not None:
                    total = total.astype(kind)
                if added:
                    before = sums[p, vector, every]
                    wraps = self.domain.is_exact
                    total = (Wrapping(before) + Wrapping(total)).value if wraps else before + total
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
        """Return the first vector of input channels in a part of the sums, and how many it has."""
        t = self.tiling
        if part is None:
            return 0, t.chunks
        start = T.Bind(part * t.part_chunks)
        return start, within(t.part_chunks, t.chunks, start)

    def _tap(self, vector: Any) -> Any:
        is_plain = not self.domain.is_of_integers
        return T.Bind(vector) if is_plain else load_weights([vector], self._unit)

    def _spread(self, channels: Any) -> Any:
        if not self.domain.is_of_integers:
            return T.Bind(splat(channels, self.lanes))
        word = tirx.reinterpret("int32", channels)
        return load_data([word], self.domain.numerics.data, self._unit)

    def _multiplied(self, sums: Any, pixels: Any, tap: Any) -> Any:
        if not self.domain.is_of_integers:
            return sums + pixels * tap
        return add_products(sums, pixels, tap, self._unit)

    def _group(self, group: Any) -> tuple[Any, Any]:
        """Return the first block of output channels of a group, and the number of blocks."""
        t = self.tiling
        first = T.Bind(group * t.group)
        return first, within(t.group, t.oc_blocks, first)

    def _sum(self, g: Any, tile: Any, v: Any) -> Any:
        """Return the position of a vector of sums among those of its point."""
        return (g * self.tiling.strip_tiles + tile) * (self.scheme.reg_oc // self.lanes) + v

    def _prefetch(self, coming: tuple[tuple[Any, Any], Any, int], step: Any) -> None:
        """Prefetch the next weights while these are in use, a vector or two a step. For more, where
        few tiles share them, the processor's own prefetching of the single stream is better.
        """
        place, block, count = coming
        steps = self.tiling.chunks * self.tiling.chunk_steps
        vectors = self.scheme.reg_oc // self.lanes
        each = ceil_div(vectors, count)
        if each > 2:
            return
        turn = tirx.floormod(block, vectors) if each == 1 else block * each
        for extra in range(each):
            ahead = ((turn + extra) * steps + step) * self.lanes * self.domain.group
            T.evaluate(prefetch_to_l2(self._weights, [*place, 0, ahead]))

    def output(self, group: Any, first: Any, count: Any, sums: Any, extents: Any, at: Any) -> None:
        """Transform the sums of register tiles from ``first`` on back and store them."""
        start = first * self.scheme.reg_n
        tiles = T.min(count * self.scheme.reg_n, self.tiling.tiles - start)
        scales = None if extents is None else (extents, at * self.scheme.reg_n)
        self._output_of(self.tiling, group, (start, tiles), 0, sums, scales)

    def edged_output(self, group: Any, sums: Any) -> None:
        assert self.tiling.edges is not None
        for region in self.tiling.edges.regions:
            tiles = region.first, region.tiles
            self._output_of(region, group, tiles, region.first, sums, None)

    def _output_of(
        self,
        tiles: Tiling | Region,
        group: Any,
        these: tuple[Any, Any],
        at: Any,
        sums: Any,
        extents: tuple[Any, Any] | None,
    ) -> None:
        """Transform and store the sums of some tiles, from ``at`` on: ``these`` has the first and
        the number, ``extents`` those of `InputTransform.measure`, and the first's place.
        """
        vectors, (start, count) = self.scheme.reg_oc // self.lanes, these
        oc_first, oc_count = self._group(group)
        with T.serial(oc_count) as g, T.serial(count) as i:
            image, row, column = tiles.corner(start + i)
            y, x = T.Bind(row), T.Bind(column)
            before = T.Bind((oc_first + g) * vectors)
            scale = None if extents is None else T.Bind(extents[0][extents[1] + i])
            with T.serial(within(vectors, self.tiling.oc_vectors, before)) as v:

                def product(row: Any, column: Any, g: Any = g, i: Any = i, v: Any = v) -> Any:
                    p = tiles.point(row, column)
                    found = sums[p, self._sum(g, at + i, v), span(0, self.lanes)]
                    return found if extents is None else self._real(found, p, oc_first + g, v)

                corner = (image, (before + v) * self.lanes, y, x)
                self._output_tile(tiles, product, corner, scale)

    def _real(self, sums: Any, p: Any, block: Any, v: Any) -> Any:
        """Return a vector of integer sums as real numbers, up to the factor of the extent."""
        kind, width = f"{self.domain.results}x{self.lanes}", self.lanes * self.domain.group
        last = int(self._weights.shape[2]) - 1
        scales = self._weights[p, block, last, span(v * width, width)]
        return sums.astype(kind) * tirx.reinterpret(kind, scales)

    def _output_tile(self, tiles: Tiling | Region, product: Reader, at: Any, scale: Any) -> None:
        w, (down, across) = self.workload, tiles.filters
        image, channel, y, x = at
        chunk = T.Bind(tirx.floordiv(channel, self.scheme.oc_bn))
        lane = T.Bind(tirx.floormod(channel, self.scheme.oc_bn))
        columns = self._sums(self.domain.results, down.tile, across.span)
        result = self._sums(self.domain.results, 1, across.tile)
        write, write_result = writer(columns), writer(result)
        with T.serial(across.span) as k:
            values = [product(i, k) for i in range(down.span)]
            for i, value in enumerate(down.output(values)):
                write(i, k, value)
        with T.serial(written(down.tile, w.dilation[0], w.out_height, y)) as i:
            row = [reader(columns)(i, k) for k in range(across.span)]
            for k, value in enumerate(across.output(row)):
                value = self.domain.finished(value)
                if scale is not None:
                    value = value * splat(scale, self.lanes)
                write_result(0, k, value)
            count = written(across.tile, w.dilation[1], w.out_width, x)
            with T.serial(count) as k:
                found, row_of = self.inputs.row(image, y + i * w.dilation[0], w.out_height)
                at = (found, chunk, row_of, x + k * w.dilation[1])
                self._results.store(result, (0, k), at, lane)
