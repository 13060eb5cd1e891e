"""The loop nest of a Winograd convolution: input transform, products, output transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.builder import prefetch_to_l2, span, splat
from neocpu.schedules.epilogue import epilogue_value
from neocpu.schedules.layout import ceil_div
from neocpu.schedules.scheme import WinogradScheme
from neocpu.schedules.winograd import input_transform, output_transform, span_of
from neocpu.schedules.workload import NO_OPERAND, PER_CHANNEL, Conv2dWorkload


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a workload falls into tiles, register tiles and strips.

    The tiles of all images, row by row, are one sequence: register tiles and strips may cross from
    one tile row or image to the next, so that only the very last register tile overhangs.

    Attributes
    ----------
    lanes : int
        Channels of one vector.
    threads : int
        Threads the strips are shared between.
    """

    workload: Conv2dWorkload
    scheme: WinogradScheme
    lanes: int
    threads: int = 1

    @property
    def rows(self) -> int:
        """Tile rows of an image."""
        return ceil_div(self.workload.out_height, self.scheme.tile)

    @property
    def columns(self) -> int:
        """Tiles of a tile row."""
        return ceil_div(self.workload.out_width, self.scheme.tile)

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.workload.batch * self.rows * self.columns

    @property
    def points(self) -> int:
        """Products of a tile, an input channel and an output channel."""
        return span_of(self.scheme.tile) ** 2

    @property
    def chunks(self) -> int:
        """Vectors of input channels."""
        return ceil_div(self.workload.in_channels, self.lanes)

    @property
    def oc_blocks(self) -> int:
        """Register tiles along the output channels, padded lanes included."""
        return output_blocks(self.workload, self.scheme)

    @property
    def blocks(self) -> int:
        """Register tiles along the image; the last may overhang."""
        return ceil_div(self.tiles, self.scheme.reg_n)

    @property
    def strips(self) -> int:
        """Strips of the image: as many as ``strip`` asks for, and a multiple of the threads."""
        strips = ceil_div(self.blocks, self.scheme.strip)
        if not self.scheme.oc_split:
            strips = ceil_div(strips, self.threads) * self.threads
        return min(strips, self.blocks)

    @property
    def strip_blocks(self) -> int:
        """Register tiles of the longest strip."""
        return ceil_div(self.blocks, self.strips)

    @property
    def tasks(self) -> int:
        """Tasks of the loop that multiplies."""
        return self.strips * (self.oc_blocks if self.scheme.oc_split else 1)

    @property
    def tasks_per_thread(self) -> int:
        """Consecutive tasks a thread gets, the last ones less."""
        return ceil_div(self.tasks, self.threads)

    @property
    def busiest_share(self) -> float:
        """Of all products, what the busiest thread computes: strips may differ in length."""
        done: list[int] = []
        for task in (*range(0, self.tasks, self.tasks_per_thread), self.tasks):
            whole, rest = divmod(task, self.strips)
            done.append(whole * self.blocks + rest * self.blocks // self.strips)
        return max(end - start for start, end in pairwise(done)) / done[-1]

    @property
    def input_bytes(self) -> int:
        """Transformed input of the whole image."""
        return self._input_bytes(self.blocks)

    @property
    def strip_bytes(self) -> int:
        """Transformed input of the longest strip."""
        return self._input_bytes(self.strip_blocks)

    @property
    def sum_bytes(self) -> int:
        """Sums of the longest strip, for the channels of one register tile."""
        return 4 * self.strip_blocks * self.scheme.reg_n * self.points * self.scheme.reg_oc

    @property
    def weight_bytes(self) -> int:
        """Transformed weights."""
        return 4 * self.points * self.oc_blocks * self.scheme.reg_oc * self.chunks * self.lanes

    def _input_bytes(self, blocks: int) -> int:
        return 4 * self.points * blocks * self.scheme.reg_n * self.chunks * self.lanes

    def strip_start(self, strip: Any) -> Any:
        """First register tile of a strip."""
        if self.strips * self.blocks < 1 << 31:
            return tirx.floordiv(strip * self.blocks, self.strips)
        product = T.cast(strip, "int64") * self.blocks
        return T.cast(tirx.floordiv(product, self.strips), "int32")

    def place(self, tile: Any) -> tuple[Any, Any, Any]:
        """Image, row and column (in output pixels) of a tile's first pixel."""
        row = tirx.floordiv(tile, self.columns)
        y = tirx.floormod(row, self.rows) * self.scheme.tile
        x = tirx.floormod(tile, self.columns) * self.scheme.tile
        return T.Bind(tirx.floordiv(row, self.rows)), T.Bind(y), T.Bind(x)


def output_blocks(workload: Conv2dWorkload, scheme: WinogradScheme) -> int:
    """Blocks of ``reg_oc`` channels that make up the output's whole blocks of ``oc_bn``."""
    return ceil_div(ceil_div(workload.out_channels, scheme.oc_bn) * scheme.oc_bn, scheme.reg_oc)


class Emitter:
    """Emits the parts of the loop nest; created inside the builder's frame."""

    def __init__(
        self, tiling: Tiling, prefetch: bool, data: Any, weights: Any, rest: Sequence[Any]
    ) -> None:
        self.tiling = tiling
        self.workload, self.scheme, self.lanes = tiling.workload, tiling.scheme, tiling.lanes
        self._data, self._weights, self._output = data, weights, rest[-1]
        self._prefetches = prefetch
        self._readers = _readers(tiling.workload, rest[:-1])

    def transformed(self, blocks: int) -> Any:
        """Allocate the transformed input of ``blocks`` register tiles, vectors by point.

        Here and in `sums`, one vector more keeps a large power of two, which would map them to the
        same lines of the caches, from between the vectors that one transform writes or reads.
        """
        t = self.tiling
        shape = (t.points, blocks * t.chunks * self.scheme.reg_n + 1, self.lanes)
        return T.alloc_buffer(shape, self.workload.dtype, layout=None)

    def _vector(self, block: Any, chunk: Any, j: Any) -> Any:
        """Position among a point's vectors of a tile's: a register tile's are consecutive."""
        return (block * self.tiling.chunks + chunk) * self.scheme.reg_n + j

    def sums(self) -> Any:
        """Allocate the sums of a strip for the channels of one register tile, vectors by tile."""
        t, vectors = self.tiling, self.scheme.reg_oc // self.lanes
        shape = (t.strip_blocks * self.scheme.reg_n, t.points * vectors + 1, self.lanes)
        return T.alloc_buffer(shape, self.workload.dtype, layout=None)

    def input(self, chunk: Any, first: Any, count: Any, result: Any, at: Any) -> None:
        """Transform register tiles ``first…`` of one vector of channels to ``result[:, at…]``."""
        reg_n = self.scheme.reg_n
        with T.serial(count) as block, T.serial(reg_n) as j:
            tile = T.Bind(T.min((first + block) * reg_n + j, self.tiling.tiles - 1))
            image, y, x = self.tiling.place(tile)
            channel = chunk * self.lanes
            lane = span(tirx.floormod(channel, self.scheme.ic_bn), self.lanes)
            self._input_tile(
                (image, tirx.floordiv(channel, self.scheme.ic_bn), lane),
                (y - self.workload.padding[0], x - self.workload.padding[1]),
                lambda p, value: T.buffer_store(
                    result,
                    value,
                    [p, self._vector(at + block, chunk, j), span(0, self.lanes)],
                ),
            )

    def _input_tile(
        self, at: tuple[Any, Any, Any], corner: tuple[Any, Any], store: Callable[..., None]
    ) -> None:
        image, chunk, lane = at
        y, x = corner
        size, every = span_of(self.scheme.tile), span(0, self.lanes)
        columns = self._vectors(size, size)

        def transform_columns(pixel: Callable[[Any, Any], Any]) -> None:
            with T.serial(size) as k:
                values = input_transform([pixel(i, k) for i in range(size)], self.scheme.tile)
                for i, value in enumerate(values):
                    T.buffer_store(columns, value, [i, k, every])

        def pixel(i: Any, k: Any) -> Any:
            return self._data[image, chunk, y + i, x + k, lane]

        inside = self._inside(y, x)
        if inside is None:
            transform_columns(pixel)
        else:
            with T.If(inside):
                with T.Then():
                    transform_columns(pixel)
                with T.Else():
                    patch = self._padded_patch(pixel, y, x)
                    transform_columns(lambda i, k: patch[i, k, every])
        with T.serial(size) as i:
            row = [columns[i, k, every] for k in range(size)]
            for k, value in enumerate(input_transform(row, self.scheme.tile)):
                store(i * size + k, value)

    def _padded_patch(self, pixel: Callable[[Any, Any], Any], y: Any, x: Any) -> Any:
        """Copy the pixels a tile reads, zeros outside the image."""
        w, size = self.workload, span_of(self.scheme.tile)
        patch = self._vectors(size, size)
        with T.serial(size) as i, T.serial(size) as k:
            T.buffer_store(patch, self._zero(), [i, k, span(0, self.lanes)])
            rows = (y + i >= 0, y + i < w.height)
            with T.If(tirx.all(*rows, x + k >= 0, x + k < w.width)), T.Then():
                T.buffer_store(patch, pixel(i, k), [i, k, span(0, self.lanes)])
        return patch

    def _vectors(self, *shape: int) -> Any:
        """Allocate vectors on the stack."""
        return T.alloc_buffer((*shape, self.lanes), self.workload.dtype, scope="local", layout=None)

    def _zero(self) -> Any:
        return splat(tirx.const(0, self.workload.dtype), self.lanes)

    def _inside(self, y: Any, x: Any) -> Any:
        """Whether a tile's pixels all lie in the image; None if those of every tile do."""
        w, t, size = self.workload, self.tiling, span_of(self.scheme.tile)
        conditions = []
        for position, before, length, count in (
            (y, w.padding[0], w.height, t.rows),
            (x, w.padding[1], w.width, t.columns),
        ):
            if before:
                conditions.append(position >= 0)
            if (count - 1) * self.scheme.tile - before + size > length:
                conditions.append(position + size <= length)
        return tirx.all(*conditions) if conditions else None

    def products(self, oc_block: Any, count: Any, transformed: Any, at: Any, sums: Any) -> None:
        """Multiply register tiles ``at…`` of ``transformed`` with a block of output channels."""
        scheme, lanes, every = self.scheme, self.lanes, span(0, self.lanes)
        vectors = scheme.reg_oc // lanes
        places = [(j, v) for j in range(scheme.reg_n) for v in range(vectors)]
        with T.serial(self.tiling.points) as p, T.serial(count) as block:
            acc = self._vectors(scheme.reg_n, vectors)
            for j, v in places:
                T.buffer_store(acc, self._zero(), [j, v, every])
            with T.serial(self.tiling.chunks) as chunk, T.serial(lanes) as k:
                step = chunk * lanes + k
                if self._prefetches:
                    self._prefetch(oc_block, p, block, step)
                taps = [
                    T.Bind(self._weights[oc_block, p, step, span(v * lanes, lanes)])
                    for v in range(vectors)
                ]
                for j in range(scheme.reg_n):
                    pixel = transformed[p, self._vector(at + block, chunk, j), k]
                    pixels = T.Bind(splat(pixel, lanes))
                    for v, tap in enumerate(taps):
                        T.buffer_store(acc, acc[j, v, every] + pixels * tap, [j, v, every])
            for j, v in places:
                place = [block * scheme.reg_n + j, p * vectors + v, every]
                T.buffer_store(sums, acc[j, v, every], place)

    def _prefetch(self, oc_block: Any, p: Any, block: Any, step: Any) -> None:
        """Ask for the next point's weights, while this one's are in use: a vector or two a step.

        Where so few tiles share the weights that a step would have to ask for more, the processor's
        own prefetching of the one stream does better.
        """
        steps = self.tiling.chunks * self.lanes
        vectors = self.scheme.reg_oc // self.lanes
        each = ceil_div(vectors, self.tiling.strip_blocks)
        if each > 2:
            return
        turn = tirx.floormod(block, vectors) if each == 1 else block * each
        for extra in range(each):
            ahead = ((turn + extra) * steps + step) * self.lanes
            T.evaluate(prefetch_to_l2(self._weights, [oc_block, p + 1, 0, ahead]))

    def output(self, oc_block: Any, first: Any, count: Any, sums: Any) -> None:
        """Transform the sums of register tiles ``first…`` back and store them."""
        scheme, vectors = self.scheme, self.scheme.reg_oc // self.lanes
        start = first * scheme.reg_n
        with T.serial(T.min(count * scheme.reg_n, self.tiling.tiles - start)) as i:
            image, y, x = self.tiling.place(start + i)
            with T.serial(vectors) as v:
                channel = oc_block * scheme.reg_oc + v * self.lanes
                self._output_tile(
                    lambda p: sums[i, p * vectors + v, span(0, self.lanes)],
                    (image, channel, y, x),
                )

    def _output_tile(self, product: Callable[[Any], Any], at: tuple[Any, Any, Any, Any]) -> None:
        w, tile, every = self.workload, self.scheme.tile, span(0, self.lanes)
        size = span_of(tile)
        image, channel, y, x = at
        chunk = T.Bind(tirx.floordiv(channel, self.scheme.oc_bn))
        lane = T.Bind(tirx.floormod(channel, self.scheme.oc_bn))
        columns, result = self._vectors(tile, size), self._vectors(tile)
        with T.serial(size) as k:
            values = output_transform([product(i * size + k) for i in range(size)], tile)
            for i, value in enumerate(values):
                T.buffer_store(columns, value, [i, k, every])
        with T.serial(_within(tile, w.out_height, y)) as i:
            row = output_transform([columns[i, k, every] for k in range(size)], tile)
            for k, value in enumerate(row):
                T.buffer_store(result, value, [k, every])
            with T.serial(_within(tile, w.out_width, x)) as k, T.vectorized(self.lanes) as o:
                index = (image, chunk, y + i, x + k, lane + o)
                value = epilogue_value(result[k, o], w, self._readers, index)
                T.buffer_store(self._output, value, list(index))


def _within(tile: int, length: int, start: Any) -> Any:
    """Pixels of a tile that starts at ``start`` which the output has."""
    return tile if length % tile == 0 else T.min(tile, length - start)


def _readers(workload: Conv2dWorkload, operands: Sequence[Any]) -> list[Callable[..., Any] | None]:
    rest = iter(operands)
    readers: list[Callable[..., Any] | None] = []
    for op in workload.epilogue:
        if op.operand == NO_OPERAND:
            readers.append(None)
            continue
        buffer = next(rest)
        if op.operand == PER_CHANNEL:
            readers.append(lambda n, c, h, w, o, b=buffer: b[0, c, 0, 0, o])
        else:
            readers.append(lambda *index, b=buffer: b[index])
    return readers
