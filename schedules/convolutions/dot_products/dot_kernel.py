"""The loop nest of a convolution by dot products: pad, multiply, store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import (
    add_products,
    load_data,
    load_weights,
    missing_products,
)
from neocpu.schedules.convolutions.dot_products.strip_nest import Source, StripNest
from neocpu.schedules.tir.bfloat16 import dot_products
from neocpu.schedules.tir.builder import span


class DotNest(StripNest):
    """Register tiles of vectors of sums, to which an instruction or a sequence adds products."""

    def _instructions(self) -> ExitStack:
        unit, is_float = self._unit, self._workload.numerics.sum == "float32"
        frames = ExitStack()
        if unit.intrinsic and is_float:
            frames.enter_context(dot_products(unit.intrinsic, unit.lanes))
        frames.enter_context(self._results.frame())
        return frames

    def _first_sums(self, block: Any) -> Callable[[int], Any]:
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
        """Bind the weights of some groups of input channels for each vector of output channels."""
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

    def _tile(
        self,
        image: Any,
        block: Any,
        row: Any,
        column: Any,
        source: Source,
        start: Callable[[int], Any],
    ) -> None:
        s, unit = self._scheme, self._unit
        shape = (s.reg_oh, s.reg_n, self._tiling.vectors, unit.lanes)
        sums = T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)
        for place in product(*map(range, shape[:-1])):
            T.buffer_store(sums, start(place[-1]), [*place, self._every])
        groups, unrolled = self._tiling.chunk_groups, self._tiling.unrolled_groups
        # One of these loops always exists, so that LLVM keeps it.
        with self._serial(self._tiling.chunks, 1) as chunk, self._window() as taps:
            for kh, kw in taps:
                with self._serial(groups // unrolled) as g:
                    for k in range(0, unrolled, s.step_groups):
                        at = (block, chunk, kh, kw, g * unrolled + k)
                        self._multiply(sums, at, source)
        self._store(sums, image, block, row, column)

    def _multiply(self, sums: Any, at: tuple[Any, ...], source: Source) -> None:
        """Add the products of a step, which has some groups of input channels at one tap."""
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
