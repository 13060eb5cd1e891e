"""Register tiles whose vectors hold two pixels by two channels, for AArch64's matrix products.

An instruction takes a group of channels for two adjacent pixels and for two output channels. A
strip with a border is copied so that the groups of two such pixels are neighbours. In place they
are neighbours only if blocks of the input are single groups; groups of larger blocks are combined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.strip_nest import Source, Start, StripNest, Tile
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.tir.bfloat16 import add_dot
from neocpu.schedules.tir.builder import flat, span, strides_of
from neocpu.schedules.vocabulary.layout import ceil_div

PAIR = 2  # pixels of an instruction, and its sums for each
UNROLLED_GROUPS = 4  # at most, of channels, without a branch between them, if they divide all


class PairNest(StripNest):
    """Register tiles of vectors that each hold the sums of two pixels and two channels."""

    _tiling: MatrixTiling

    @property
    def _stride(self) -> int:  # columns in a strip so far apart are an instruction's pixels
        return self._workload.stride[1]

    def _strip(self) -> Any:
        t, group = self._tiling, self._unit.group
        planes = self._scheme.ic_bn // group
        columns = ceil_div(t.strip_columns, self._stride)
        shape = (t.image_chunks, planes, t.strip_rows, self._stride, columns, group)
        return T.alloc_buffer(shape, self._copied_type, layout=None)

    def _copy(self, padded: Any, at: tuple[Any, ...], value: Callable[[Any], Any]) -> None:
        (chunk, row, x), group = at, self._unit.group
        column = (tirx.floormod(x, self._stride), tirx.floordiv(x, self._stride))
        for plane in range(self._scheme.ic_bn // group):
            with T.vectorized(group) as lane:
                datum = self._shifted(value(plane * group + lane))
                T.buffer_store(padded, datum, [chunk, plane, row, *column, lane])

    def _copied(self, padded: Any, first: Any, top: Any, left: Any) -> Source:
        def pixel(chunk: Any, y: Any, x: Any, at: Any) -> Any:
            column = (tirx.floormod(left + x, self._stride), tirx.floordiv(left + x, self._stride))
            return padded[first + chunk, at, top + y, *column, 0]

        return pixel

    def _tile(self, at: Tile, source: Source, start: Start) -> None:
        t, w = self._tiling, self._workload
        shape = (t.block_rows, t.block_columns, self._lanes)
        sums = T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)
        for i, j in product(range(t.block_rows), range(t.block_columns)):
            T.buffer_store(sums, start(j), [i, j, self._every])
        groups = math.gcd(t.chunk_groups, UNROLLED_GROUPS)
        chunks = math.gcd(t.chunks, UNROLLED_GROUPS) if t.is_flat and t.chunk_groups == 1 else 1
        with self._serial(t.chunks // chunks, 1) as first, self._rows() as rows:
            for more, kh, kw in product(range(chunks), rows, range(w.kernel[1])):
                with self._serial(t.chunk_groups // groups) as g:
                    for k in range(groups):
                        step = (at[1], first * chunks + more, kh, kw, g * groups + k)
                        self._multiply(sums, step, source)
        self._store(sums, at)

    def _multiply(self, sums: Any, at: tuple[Any, ...], source: Source) -> None:
        t, w, width = self._tiling, self._workload, PAIR * self._unit.group
        block, chunk, kh, kw, group = at
        pixels = []
        for i in range(t.block_rows):
            x = PAIR * i * w.stride[1] + kw * w.dilation[1]
            pixels.append(self._pair(source, chunk, kh * w.dilation[0], x, group))
        for j in range(t.block_columns):
            place = [block, chunk, kh, kw, group, span(j * width, width)]
            taps = self._operand(self._weights[tuple(place)])
            for i, pair in enumerate(pixels):
                total = self._add(sums[i, j, self._every], pair, taps)
                T.buffer_store(sums, total, [i, j, self._every])

    def _pair(self, source: Source, chunk: Any, y: Any, x: Any, group: Any) -> Any:
        t, w, size = self._tiling, self._workload, self._unit.group
        first = source(chunk, y, x, group if t.copies else group * size)
        if t.copies or (w.stride[1] == 1 and self._scheme.ic_bn == size):
            return self._operand(_vector(first, PAIR * size))
        second = source(chunk, y, x + w.stride[1], group * size)
        words = [tirx.reinterpret("int64", _vector(each, size)) for each in (first, second)]
        is_first = tirx.LT(T.ramp(0, 1, PAIR), T.broadcast(tirx.const(1, "int32"), PAIR))
        both = tirx.Select(is_first, *(T.broadcast(word, PAIR) for word in words))
        return self._operand(tirx.reinterpret(f"{self._copied_type}x{PAIR * size}", both))

    def _operand(self, vector: Any) -> Any:
        """Bind a vector in the type that the instruction takes: pairs of bfloat16 as words."""
        if self._workload.numerics.sum == "float32":
            vector = tirx.reinterpret(f"int32x{self._lanes}", vector)
        return T.Bind(vector)

    def _add(self, sums: Any, pixels: Any, taps: Any) -> Any:
        if self._workload.numerics.sum == "float32":
            return add_dot(sums, pixels, taps)
        return tirx.call_llvm_pure_intrin(sums.ty.dtype, self._unit.intrinsic, sums, pixels, taps)

    def _store_vectors(self, sums: Any, v: int, at: tuple[Any, ...]) -> None:
        image, chunk, row, column, lane = at
        lanes = self._lanes
        vector = T.alloc_buffer((PAIR, lanes), str(sums.dtype), scope="local", layout=None)
        for i in range(self._tiling.block_rows):
            halves = [sums[i, 2 * v + half, self._every] for half in range(2)]
            for pixel in range(PAIR):
                own = [PAIR * pixel, PAIR * pixel + 1]
                lanes_of = [*own, *(lanes + each for each in own)]
                T.buffer_store(vector, tirx.Shuffle(halves, lanes_of), [pixel, self._every])
                place = (image, chunk, row, column + PAIR * i + pixel)
                self._results.store(vector, (pixel,), place, lane)


def _vector(first: Any, width: int) -> Any:
    """Return ``width`` elements from ``first`` on, possibly beyond the end of its axis."""
    buffer, indices = first.source, first.indices
    steps = strides_of([int(extent) for extent in buffer.shape])
    offset = sum(index * step for index, step in zip(indices, steps, strict=True))
    return flat(buffer)[span(offset, width)]
