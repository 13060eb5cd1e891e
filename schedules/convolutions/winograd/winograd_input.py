"""The input transform of a Winograd convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.edge_tiles import Region
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.tir.bfloat16 import bits_of
from neocpu.schedules.tir.builder import span, splat
from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.layout import ceil_div


class InputTransform:
    """An emitter of the code that reads and transforms the data, with ``border`` for zeros around
    the image. With ``rows_are_frames``, images of the workload are volumes, whose rows are images
    in the buffers.
    """

    def __init__(self, tiling: Tiling, data: Any, border: Any, *, rows_are_frames: bool) -> None:
        self.tiling, self.workload, self.scheme = tiling, tiling.workload, tiling.scheme
        self.domain = tiling.domain
        self._data, self._border = bits_of(data), border
        self._rows_are_frames = rows_are_frames

    def transformed(self, blocks: int) -> Any:
        """Allocate the transformed input of ``blocks`` register tiles.

        Values that are written together lie together: for a register tile and a vector of channels,
        the vectors of all points and tiles. Here and in the sums, one extra vector avoids distances
        of a large power of two, which would map all of them to the same cache lines.

        If tiles differ in size, the values of an image lie together for a vector of channels and a
        point, and the extra vector lies between chunks.
        """
        t = self.tiling
        if t.edges:
            shape = (t.chunks, t.points * t.tiles + 1, t.width)
        else:
            shape = (blocks * t.chunks, t.points * self.scheme.reg_n + 1, t.width)
        return T.alloc_buffer(shape, self.domain.numerics.data, layout=None)

    def extents(self, blocks: int) -> Any:
        """Allocate the results of `measure` for the tiles of ``blocks`` register tiles, if any."""
        if not self.domain.is_scaled:
            return None
        return T.alloc_buffer((blocks * self.scheme.reg_n,), self.domain.results, layout=None)

    def measure(self, first: Any, count: Any, extents: Any, at: Any) -> None:
        """Find the extents of the pixels of register tiles from ``first`` on, for ``extents[at…]``.

        The bits of bfloat16 are ordered: as int16 those of non-negative numbers, as uint16 those of
        the others, with NaN after all numbers.
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
                bits, (y, x), _, _ = self._pixels(t, tile, chunk)
                (rows, above), (columns, before) = self._existing(t, y, x)
                mask = self._mask(chunk)
                with T.serial(rows) as i, T.serial(columns) as k:
                    found = T.Bind(tirx.bitwise_and(bits(above + i, before + k), mask))
                    signed = tirx.reinterpret(f"int16x{width}", found)
                    T.buffer_store(high, T.max(high[tuple(every)], signed), every)
                    T.buffer_store(low, T.max(low[tuple(every)], found), every)
            found = scaled_integers.extent(high[tuple(every)], low[tuple(every)])
            T.buffer_store(extents, found, [(at + block) * reg_n + j])

    def _mask(self, chunk: Any) -> Any:
        """Bind the mask of a vector of channels that excludes padding, which may hold anything."""
        width, channels = self.tiling.width, self.workload.in_channels
        every = splat(tirx.const(0xFFFF, "uint16"), width)
        if channels % width == 0:
            return every
        lanes = T.Ramp(0, 1, width)
        counts = lanes < splat(channels - chunk * width, width)
        return T.Bind(T.Select(counts, every, splat(tirx.const(0, "uint16"), width)))

    def transform(
        self, chunk: Any, first: Any, count: Any, result: Any, at: Any, extents: Any
    ) -> None:
        """Transform register tiles from ``first`` on, one vector, to ``result[:, at…]``."""
        t, reg_n = self.tiling, self.scheme.reg_n
        with T.serial(count) as block, T.serial(reg_n) as j:
            tile = T.Bind(T.min((first + block) * reg_n + j, t.tiles - 1))
            pixels = self._pixels(t, tile, chunk)
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
                vector = t.point(i, k) * reg_n + j
                T.buffer_store(result, value, [place, vector, span(0, t.width)])

            self._input_tile(t, pixels, store)

    def transform_edged(self, chunk: Any, tile: Any, result: Any) -> None:
        """Transform one tile of any region, for one vector of channels, to ``result[chunk]``."""
        t, edges = self.tiling, self.tiling.edges
        assert edges is not None

        def transform(region: Region) -> None:
            def store(i: Any, k: Any, value: Any) -> None:
                vector = region.point(i, k) * t.tiles + tile
                T.buffer_store(result, value, [chunk, vector, span(0, t.width)])

            self._input_tile(region, self._pixels(region, tile, chunk), store)

        def among(regions: Sequence[Region]) -> None:
            one, *others = regions
            if not others:
                transform(one)
                return
            with T.If(tile < others[0].first):
                with T.Then():
                    transform(one)
                with T.Else():
                    among(others)

        among(edges.regions)

    def _pixels(
        self, tiles: Tiling | Region, tile: Any, chunk: Any
    ) -> tuple[Any, tuple[Any, Any], tuple[Any, ...], Any]:
        """Return the reader of a tile's stored pixels, the first's position, the conditions that
        its image exists, and the lanes of the vector of channels.
        """
        t = self.tiling
        image, first_row, first_column = tiles.corner(tile, of_input=True)
        each = self.workload.image_channels
        image, channel, exists = place_of(self.workload, image, chunk * t.width, each)
        channels = tirx.floordiv(channel, self.scheme.ic_bn)
        lane = span(tirx.floormod(channel, self.scheme.ic_bn), t.width)
        top, left = self.workload.padding[:2]
        y = T.Bind(first_row - top)
        x = T.Bind(first_column - left)

        def pixel(i: Any, k: Any) -> Any:
            below, beside = self.workload.dilation
            found, row_of = self.row(image, y + i * below, self.workload.height)
            return self._data[found, channels, row_of, x + k * beside, lane]

        return pixel, (y, x), exists, lane

    def _widened(self, pixels: Any) -> Any:
        if self.domain.is_scaled:
            return T.Bind(scaled_integers.widened(pixels))
        if not self.domain.is_exact:
            return pixels
        return pixels.astype(f"{self.domain.pixels}x{self.tiling.width}")

    def row(self, image: Any, row: Any, height: int) -> tuple[Any, Any]:
        return (image * height + row, 0) if self._rows_are_frames else (image, row)

    def _input_tile(
        self, tiles: Tiling | Region, pixels: tuple[Any, ...], store: Callable[..., None]
    ) -> None:
        """Transform the tile whose ``pixels`` are given; the first, or all unless the conditions
        that its image exists hold, may lie in the padding.
        """
        down, across = tiles.filters
        stored, (y, x), exists, _ = pixels
        columns = self._inputs(down.span, across.span)

        def pixel(i: Any, k: Any) -> Any:
            return self._widened(stored(i, k))

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
                transform_columns(pixel, writer(columns))

        conditions = (*exists, *self._inside(tiles, y, x))
        if not conditions:
            transform(pixel)
        else:
            with T.If(tirx.all(*conditions)):
                with T.Then():
                    transform(pixel)
                with T.Else():
                    transform(reader(self._padded_patch(tiles, pixel, pixels)))
        if not down.is_identity and not across.is_identity:
            transform_rows(reader(columns))

    def _padded_patch(self, tiles: Tiling | Region, pixel: Callable[..., Any], place: Any) -> Any:
        """Copy the pixels that a tile reads, with zeros or the zero point outside the image."""
        down, across = tiles.filters
        _, (y, x), exists, lane = place
        patch = self._inputs(down.span, across.span)
        write = writer(patch)
        outside = splat(tirx.const(0, self.domain.pixels), self.tiling.width)
        if self._border is not None:
            outside = T.Bind(self._widened(self._border[lane]))
        with T.serial(down.span) as i, T.serial(across.span) as k:
            write(i, k, outside)
        (rows, above), (columns, before) = self._existing(tiles, y, x)
        if exists:
            rows = T.Select(tirx.all(*exists), rows, 0)
        with T.serial(rows) as i, T.serial(columns) as k:
            write(above + i, before + k, pixel(above + i, before + k))
        return patch

    def _existing(
        self, tiles: Tiling | Region, y: Any, x: Any
    ) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return the rows and columns of a tile inside the image, and those missing before it."""
        w, (down, across) = self.workload, tiles.filters
        top, left = w.padding[:2]
        rows = _overlap(down.span, w.dilation[0], w.height, y, top)
        return rows, _overlap(across.span, w.dilation[1], w.width, x, left)

    def _inputs(self, *shape: int) -> Any:
        kind = self.domain.pixels
        return T.alloc_buffer((*shape, self.tiling.width), kind, scope="local", layout=None)

    def _inside(self, tiles: Tiling | Region, y: Any, x: Any) -> list[Any]:
        """Return conditions that a tile's pixels all lie in the image; none if every tile's do."""
        w, (down, across) = self.workload, tiles.filters
        conditions = []
        for axis, position, length, line in ((0, y, w.height, down), (1, x, w.width, across)):
            before, reach = w.padding[axis], (line.span - 1) * w.dilation[axis] + 1
            if before:
                conditions.append(position >= 0)
            if tiles.last(axis) - before + reach > length:
                conditions.append(position + reach <= length)
        return conditions


def reader(vectors: Any) -> Callable[..., Any]:
    return lambda *index: vectors[(*index, span(0, int(vectors.shape[-1])))]


def writer(vectors: Any) -> Callable[..., None]:
    def write(i: Any, k: Any, value: Any) -> None:
        T.buffer_store(vectors, value, [i, k, span(0, int(vectors.shape[-1]))])

    return write


def _overlap(count: int, dilation: int, length: int, start: Any, padding: int) -> tuple[Any, Any]:
    """Return how many of ``count`` pixels from ``start`` on are in the image, and are before it."""
    # TVM cannot generate every division of a number that may be negative, as ``start`` may.
    lines = ceil_div(padding, dilation)
    begun = start if dilation == 1 else tirx.floordiv(start + lines * dilation, dilation) - lines
    before = T.Bind(T.max(-begun, 0))
    return T.max(T.min(count, spaced(length - start, dilation)) - before, 0), before


def spaced(length: Any, dilation: int) -> Any:
    """Return the number of pixels, ``dilation`` apart, among the first ``length``; at least 0."""
    if dilation == 1:
        return length
    return tirx.floordiv(T.max(length, 0) + (dilation - 1), dilation)


def frames_as_rows(buffer: Any) -> Any:
    """Return depth slices, ``(V * D, C/x, H, W, x)``, as images of one row each."""
    n, chunks, height, width, block = (int(extent) for extent in buffer.shape)
    shape, dtype = (n, chunks, 1, height * width, block), str(buffer.dtype)
    return T.decl_buffer(shape, dtype, data=buffer.data, layout=None)


def within(tile: int, length: int, start: Any) -> Any:
    """Return the number of pixels, or vectors, of a tile at ``start`` that lie in the output."""
    return tile if length % tile == 0 else T.min(tile, length - start)


def written(tile: int, dilation: int, length: int, start: Any) -> Any:
    """Return the pixels, ``dilation`` apart, of a tile at ``start`` that lie in the output."""
    if dilation == 1 or length % (tile * dilation) == 0:
        return within(tile, length // dilation, start)
    return T.min(tile, spaced(length - start, dilation))
