"""The loop nest of a 1x1 convolution by Strassen's algorithm: add pixels, multiply, store.

It uses Winograd's form. A tile of pixels has ``a`` of the first half of the input channels and
``b`` of the second; the next tile has ``c`` and ``d``. The weights are ``p`` and ``r`` of one tile
of output channels, and ``q`` and ``s`` of the next::

    s1 = c + d    s2 = s1 - a    s3 = a - c    s4 = b - s2

    u = a p                         first pixels, first outputs:    u + b r
    v = u + s2 (s - q + p)
    w = v + s3 (s - q)              next pixels, first outputs:     w + d (r - s + q - p)
    x = s1 (q - p)                  next pixels, next outputs:      w + x
                                    first pixels, next outputs:     v + x + s4 s

Sums of weights are made when they are packed, and sums of products in registers. Direct summation
makes none of these sums; here, channels of different magnitudes would drown in each other.
Therefore ``b`` and ``d`` of each channel are multiplied by the power of two that makes its weights
as large as those of its neighbour in the first half, and so are an output's weights ``q`` and
``s``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.pixel_tiles import Part, Pixel, TileEmitter, first_pixel, part
from neocpu.schedules.convolutions.pointwise_tiling import PIXEL_SUMS, PRODUCTS, StrassenTiling
from neocpu.schedules.tir.builder import fraction, span
from neocpu.schedules.vocabulary.layout import ceil_div

# The number of sums of products that wait in L1.
KEPT = 3


# The places of a strip's sums of pixels in its panel, and of its pixels if they are packed: ``c``
# lies where ``s1`` will be.
_S1, _S2, _S3, _S4, _A, _B, _D = range(PRODUCTS)
_C = _S1


@dataclass(frozen=True, slots=True)
class _Pixels:
    """The buffers of a task's strip, ``(blocks, operands, half, reg_n, lanes)``; ``ends`` has
    packed pixels after both halves, ``(blocks, 2, chunks, reg_n, lanes)``.
    """

    panel: Any
    ends: Any
    image: Any


def _reader(buffer: Any, *place: Any) -> Pixel:
    return lambda j, k: buffer[(*place, j, k)]


class Emitter(TileEmitter):
    """An emitter of the loop nest, created inside the builder's frame."""

    _tiling: StrassenTiling

    def emit(self) -> None:
        t, batch = self._tiling.tiles, self._workload.batch
        with T.parallel(batch * t.tasks) as task:
            image = 0 if batch == 1 else T.Bind(tirx.floormod(task, batch))
            place = task if batch == 1 else T.Bind(tirx.floordiv(task, batch))
            oc = part(tirx.floordiv(place, t.strips), t.oc_blocks, t.groups)
            strip = part(tirx.floormod(place, t.strips), t.blocks, t.strips)
            self._task(image, oc, strip)

    def _task(self, image: Any, oc: Part, strip: Part) -> None:
        t, reg_n, data = self._tiling, self._scheme.reg_n, self._workload.numerics.data
        blocks, tail = t.tiles.strip_blocks, (reg_n, self._lanes)
        panel = T.alloc_buffer((blocks, t.operands, t.half, *tail), data, layout=None)
        kept = T.alloc_buffer((KEPT, reg_n, t.vectors, self._lanes), data, layout=None)
        ends = None
        if t.packs and t.rest:
            shape = (blocks, 2, ceil_div(t.rest, self._lanes), *tail)
            ends = T.alloc_buffer(shape, data, layout=None)
        pixels = _Pixels(panel, ends, image)
        with T.serial(strip.count) as i:
            start = first_pixel(t.tiles, strip.first + i)
            self._add_pixels(pixels, i, oc.first, start)
            if ends is not None:
                self._pack_ends(pixels, i, start)
        with T.serial(oc.count) as o, T.serial(strip.count) as i:
            self._block(pixels, oc.first + o, i, first_pixel(t.tiles, strip.first + i), kept)

    def _add_pixels(self, pixels: _Pixels, at: Any, oc: Any, start: Any) -> None:
        """Compute ``s1`` to ``s4`` of a block's pixels; with a prologue also keep the pixels."""
        t, lanes, reg_n = self._tiling, self._lanes, self._scheme.reg_n

        def read(place: int, far: bool, chunk: Any, j: int) -> Any:
            first = (chunk + t.half if far else chunk) * lanes
            pixel = start + j + (reg_n if place in (_C, _D) else 0)
            if t.packs:
                target = (at, place, chunk, j)
                self._pack_vector(pixels.panel, target, (pixels.image, first, 0, pixel))
                return pixels.panel[(*target, self._every)]
            vector, lane = self._chunk_of(first, self._scheme.ic_bn)
            return self._data[pixels.image, vector, 0, pixel, span(lane, lanes)]

        with T.serial(t.half) as chunk:
            row, column = tirx.floordiv(chunk, t.vectors), tirx.floormod(chunk, t.vectors)
            factor = T.Bind(self._weights[oc, t.factor_row + row, span(column * lanes, lanes)])
            for j in range(reg_n):
                a, c = (T.Bind(read(place, False, chunk, j)) for place in (_A, _C))
                b, d = (T.Bind(read(place, True, chunk, j)) for place in (_B, _D))
                first = T.Bind(c + factor * d)
                second = T.Bind(first - a)
                for place, value in enumerate((first, second, a - c, factor * b - second)):
                    T.buffer_store(pixels.panel, value, [at, place, chunk, j, self._every])

    def _pack_ends(self, pixels: _Pixels, at: Any, start: Any) -> None:
        t, reg_n = self._tiling, self._scheme.reg_n
        for tile, chunk, j in product(*map(range, map(int, pixels.ends.shape[1:4]))):
            channel = (2 * t.half + chunk) * self._lanes
            source = (pixels.image, channel, 0, start + tile * reg_n + j)
            self._pack_vector(pixels.ends, (at, tile, chunk, j), source)

    def _block(self, pixels: _Pixels, oc: Any, at: Any, start: Any, kept: Any) -> None:
        """Compute and store both tiles of pixels for both tiles of output channels."""
        half, reg_n = self._tiling.half, self._scheme.reg_n
        starts = (start, T.Bind(start + reg_n))
        acc = self._sums()

        def multiply(number: int, place: int) -> None:
            with T.serial(half) as chunk:
                row = number * half + chunk
                if self._prefetches:
                    self._prefetch(oc, at * PRODUCTS * half + row)
                if place < PIXEL_SUMS or self._tiling.packs:
                    pixel = _reader(pixels.panel, at, place, chunk)
                else:
                    stored = chunk if place == _A else half + chunk
                    pixel = self._stored_pixel(pixels.image, starts[place == _D], stored)
                self._multiply(acc, oc, row * self._lanes, self._lanes, pixel)

        def store(tile: int, outputs: int) -> None:
            self._multiply_rest(acc, pixels, (at, tile, starts[tile]), oc, outputs)
            if outputs:
                self._fill(acc, lambda j, v: acc[j, v, self._every] * self._undoing(oc, v))
            places = [(pixels.image, 0, starts[tile] + j) for j in range(reg_n)]
            self._store(acc, 2 * oc + outputs, 2 * self._tiling.tiles.oc_blocks, places)

        self._fill(acc, lambda j, v: self._zero)
        multiply(0, _A)
        self._keep(acc, kept, 0)
        multiply(1, _B)
        store(0, 0)
        self._fill(acc, lambda j, v: kept[0, j, v, self._every])
        multiply(2, _S2)
        self._keep(acc, kept, 1)
        multiply(3, _S3)
        self._keep(acc, kept, 2)
        multiply(4, _D)
        store(1, 0)
        self._fill(acc, lambda j, v: self._zero)
        multiply(5, _S1)
        self._keep(acc, kept, 0)
        self._fill(acc, lambda j, v: acc[j, v, self._every] + kept[2, j, v, self._every])
        store(1, 1)
        self._fill(acc, lambda j, v: kept[0, j, v, self._every] + kept[1, j, v, self._every])
        multiply(6, _S4)
        store(0, 1)

    def _keep(self, acc: Any, kept: Any, place: int) -> None:
        for j, v in self._places:
            T.buffer_store(kept, acc[j, v, self._every], [place, j, v, self._every])

    def _undoing(self, oc: Any, vector: int) -> Any:
        """Return the inverse factors of a vector of sums of a block's second output tile."""
        return self._weights[oc, self._tiling.last_row, span(vector * self._lanes, self._lanes)]

    def _multiply_rest(
        self, acc: Any, pixels: _Pixels, place: tuple[Any, int, Any], oc: Any, outputs: int
    ) -> None:
        """Add the products of the input channels after both halves directly; ``place`` has a
        block's number in its strip, a tile of it, and its first pixel.
        """
        t, lanes = self._tiling, self._lanes
        at, tile, start = place
        first = t.rest_row + outputs * t.rest
        for chunk, done in enumerate(range(0, t.rest, lanes)):
            if pixels.ends is None:
                pixel = self._stored_pixel(pixels.image, start, 2 * t.half + chunk)
            else:
                pixel = _reader(pixels.ends, at, tile, chunk)
            self._multiply(acc, oc, first + done, min(lanes, t.rest - done), pixel)

    def _prefetch(self, oc: Any, visit: Any) -> None:
        """Prefetch the next block's weights over the strip, a vector of input channels a visit."""
        elements, turns = self._lanes * self._scheme.reg_oc, self._tiling.tiles.strip_blocks
        place = fraction(visit, elements, turns, self._target)
        self._fetch_weights(oc + 1, place, elements, turns)
