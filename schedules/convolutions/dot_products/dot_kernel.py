"""The loop nest of a convolution by dot products: pad, multiply, store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    Operand,
    add_products,
    load_data,
    load_weights,
    missing_products,
)
from neocpu.schedules.convolutions.dot_products.strip_nest import Source, Start, StripNest, Tile
from neocpu.schedules.tir.builder import span


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
