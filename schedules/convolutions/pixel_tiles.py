"""Register tiles of 1x1 convolutions: some pixels by some vectors of output channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.kernel_nest import KernelNest, moved_back
from neocpu.schedules.convolutions.pointwise_tiling import Tiling
from neocpu.schedules.estimates.memory_traffic import LINE, fetches_next
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.tir.builder import part_start, prefetch_to_l2, span, splat
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import varies

Pixel: TypeAlias = Callable[[int, int], Any]  # scalar of a register tile's pixel and a lane
Place: TypeAlias = tuple[Any, Any, Any]  # image, row and column of an output pixel


@dataclass(frozen=True, slots=True)
class Part:
    """A range along an axis, and its number."""

    number: Any
    first: Any
    count: Any


def part(number: Any, total: int, parts: int) -> Part:
    """Return part ``number`` of ``parts`` nearly equal ones."""
    if not varies(total, parts) and total % parts == 0:
        return Part(number, T.Bind(number * (total // parts)), total // parts)
    first = T.Bind(part_start(number, total, parts))
    return Part(number, first, T.Bind(part_start(number + 1, total, parts) - first))


def first_pixel(tiling: Tiling, block: Any) -> Any:
    if tiling.overhangs:
        return T.Bind(block * tiling.scheme.reg_n)
    return T.Bind(moved_back(block, tiling.scheme.reg_n, tiling.pixels))


class TileEmitter(KernelNest):
    """An emitter of parts of register tiles; the weights are ``(blocks, rows, reg_oc)``."""

    def __init__(
        self, tiling: Any, target: CpuTarget, data: Any, weights: Any, rest: Sequence[Any]
    ) -> None:
        workload = tiling.workload
        unit = target.dot_unit(workload.numerics)
        super().__init__(workload, tiling.scheme, unit, data, weights, rest)
        self._tiling, self._target = tiling, target
        self._prefetches = tiling.weight_bytes > target.l2 // 2
        self._places = list(product(range(self._scheme.reg_n), range(self._vectors)))

    def _stored_pixel(self, image: Any, start: Any, chunk: Any) -> Pixel:
        chunk, lane = self._chunk_of(chunk * self._lanes, self._scheme.ic_bn)
        return lambda j, k: self._data[image, chunk, 0, start + j, lane + k]

    def _pack_vector(self, panel: Any, target: tuple[Any, ...], source: tuple[Any, ...]) -> None:
        """Copy a vector of channels; ``source`` is its image, first channel, row and column."""
        image, channel, y, x = source
        chunk, lane = self._chunk_of(channel, self._scheme.ic_bn)
        with T.vectorized(self._lanes) as o:
            index = (image, chunk, y, x, lane + o)
            value = apply_steps(self._data[index], self._workload.prologue, self._before, index)
            T.buffer_store(panel, value, [*target, o])

    def _sums(self) -> Any:
        shape = (self._scheme.reg_n, self._vectors, self._lanes)
        return T.alloc_buffer(shape, self._workload.numerics.sum, scope="local", layout=None)

    def _fill(self, acc: Any, value: Callable[[int, int], Any]) -> None:
        """Set a register tile's sums, each to ``value(pixel, vector)``."""
        for j, v in self._places:
            T.buffer_store(acc, value(j, v), [j, v, self._every])

    @property
    def _zero(self) -> Any:
        return splat(tirx.const(0, self._workload.numerics.sum), self._lanes)

    def _multiply(self, acc: Any, oc: Any, first: Any, channels: int, pixel: Pixel) -> None:
        """Add the products of a vector of input channels, in a loop where a multiply-add may
        broadcast: of unrolled steps, LLVM moves broadcasts ahead into registers that sums lack.
        """
        lanes = self._lanes

        def step(k: Any) -> None:
            taps = [
                T.Bind(self._weights[oc, first + k, span(v * lanes, lanes)])
                for v in range(self._vectors)
            ]
            for j in range(self._scheme.reg_n):
                pixels = T.Bind(splat(pixel(j, k), lanes))
                for v, tap in enumerate(taps):
                    at = [j, v, self._every]
                    T.buffer_store(acc, acc[j, v, self._every] + pixels * tap, at)

        if self._unit.broadcasts_from_memory:
            with T.serial(channels) as k:
                step(k)
            return
        for k in range(channels):
            step(k)

    def _fetch_weights(self, row: Any, place: Any, elements: int, turns: int) -> None:
        """Prefetch one of ``turns`` parts of ``elements`` weights, and of the next layer's."""
        each = LINE // bytes_of(self._workload.numerics.weights)
        blocks = int(self._weights.shape[0])
        size = math.prod(map(int, self._weights.shape)) * bytes_of(self._workload.numerics.weights)
        for line in range(ceil_div(elements, each * turns)):
            column = place + line * each
            T.evaluate(prefetch_to_l2(self._weights, [row, 0, column]))
            if fetches_next(size, self._target):
                T.evaluate(prefetch_to_l2(self._weights, [row + blocks, 0, column]))

    def _existing(self, pixel: int) -> AbstractContextManager[Any]:
        """Return the frame in which a register tile's pixel is stored; by default an empty one."""
        return nullcontext()

    def _store(self, acc: Any, oc: Any, oc_blocks: int, places: Sequence[Place]) -> None:
        """Store a register tile, number ``oc`` of ``oc_blocks`` along the output channels."""

        def store(v: int, chunk: Any, lane: Any) -> None:
            for j, (image, y, x) in enumerate(places):
                with self._existing(j):
                    self._results.store(acc, (j, v), (image, chunk, y, x), lane)

        reg_oc = self._scheme.reg_oc
        self._store_existing(oc_blocks, lambda v: oc * reg_oc + v * self._lanes, store)
