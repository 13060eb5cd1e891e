"""The loop nest of a 1x1 convolution as a blocked matrix product: pack, multiply, store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.pointwise_tiling import Tiling
from neocpu.schedules.estimates.memory_traffic import LINE, fetches_next
from neocpu.schedules.operators.epilogue import (
    apply_steps,
    as_stored,
    buffer_readers,
    epilogue_value,
    prologue_operands,
)
from neocpu.schedules.tir.builder import fraction, part_start, prefetch_to_l2, span, splat
from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

Pixel: TypeAlias = Callable[[int, int], Any]  # scalar of a register tile's pixel and a lane


@dataclass(frozen=True, slots=True)
class _Part:
    """A range along some axis: its number, its first element and how many it has."""

    number: Any
    first: Any
    count: Any


def _part(number: Any, total: int, parts: int) -> _Part:
    """Return the part of that number, of ``parts`` about equal ones."""
    if total % parts == 0:
        return _Part(number, T.Bind(number * (total // parts)), total // parts)
    first = T.Bind(part_start(number, total, parts))
    return _Part(number, first, T.Bind(part_start(number + 1, total, parts) - first))


def _panel_pixel(panel: Any, at: Any, chunk: Any) -> Pixel:
    return lambda j, k: panel[at, chunk, j, k]


class Emitter:
    """Emits the loop nest; created inside the builder's frame."""

    def __init__(
        self, tiling: Tiling, target: CpuTarget, data: Any, weights: Any, rest: Sequence[Any]
    ) -> None:
        self.tiling = tiling
        self.workload, self.scheme, self.lanes = tiling.workload, tiling.scheme, tiling.lanes
        self._data, self._weights, self._output = data, weights, rest[-1]
        self._target = target
        self._prefetches = tiling.weight_bytes > target.l2 // 2
        self._reads_ahead = not tiling.packs and target.isa != "neon"
        before = len(prologue_operands(tiling.workload, tiling.scheme.in_layout))
        self._before = buffer_readers(tiling.workload.prologue, rest[:before])
        self._behind = buffer_readers(tiling.workload.epilogue, rest[before:-1])
        self._places = list(product(range(tiling.scheme.reg_n), range(tiling.vectors)))
        self._every = span(0, tiling.lanes)

    def emit(self) -> None:
        """Emit everything; see `neocpu.schedules.convolutions.conv2d_pointwise.lower`."""
        t = self.tiling
        shared = None
        if t.shares_panel:
            shared = self._panel(t.blocks, t.chunks, self.scheme.reg_n, self.lanes)
            with T.parallel(t.blocks * t.passes) as task:
                block = T.Bind(tirx.floordiv(task, t.passes))
                ic = _part(tirx.floormod(task, t.passes), t.chunks, t.passes)
                self._pack(shared, block, block, ic, ic.first)
        with T.parallel(t.tasks) as task:
            # All strips of a group of output channels: its weights stay in the thread's L2.
            oc = _part(tirx.floordiv(task, t.strips), t.oc_blocks, t.groups)
            strip = _part(tirx.floormod(task, t.strips), t.blocks, t.strips)
            self._task(oc, strip, shared)

    def _task(self, oc: _Part, strip: _Part, shared: Any) -> None:
        t, scheme = self.tiling, self.scheme
        own = sums = None
        if t.packs and shared is None:
            own = self._panel(t.strip_blocks, t.pass_chunks, scheme.reg_n, self.lanes)
        if t.passes > 1:
            shape = (t.group_blocks * t.strip_blocks, scheme.reg_n, scheme.reg_oc)
            sums = T.alloc_buffer(shape, self.workload.numerics.sum, layout=None)
        with T.serial(t.passes) as turn:
            ic = _part(turn, t.chunks, t.passes)
            if own is not None:
                with T.serial(strip.count) as i:
                    self._pack(own, i, strip.first + i, ic, 0)
            with T.serial(oc.count) as o, T.serial(strip.count) as i:
                start = self._first_pixel(strip.first + i)
                after = self._first_pixel(strip.first + i + 1) if self._reads_ahead else None
                acc = self._accumulators(sums, o * t.strip_blocks + i, ic)

                def multiply(chunk: Any, channels: int) -> None:
                    if self._prefetches:
                        self._prefetch(oc, o, ic, i * ic.count + chunk)
                    if after is not None:
                        with T.If(o == 0), T.Then():
                            self._prefetch_pixels(after, ic.first + chunk)
                    if own is not None:
                        pixel = _panel_pixel(own, i, chunk)
                    elif shared is not None:
                        pixel = _panel_pixel(shared, strip.first + i, ic.first + chunk)
                    else:
                        pixel = self._stored_pixel(start, ic.first + chunk)
                    first = (ic.first + chunk) * self.lanes
                    self._multiply(acc, oc.first + o, first, channels, pixel)

                self._each_chunk(ic, multiply)
                self._leave(acc, sums, o * t.strip_blocks + i, ic, oc.first + o, start)

    def _panel(self, *shape: int) -> Any:
        return T.alloc_buffer(shape, self.workload.numerics.data, layout=None)

    def _first_pixel(self, block: Any) -> Any:
        """First pixel of a register tile; the last one moves back where it would overhang."""
        reg_n, pixels = self.scheme.reg_n, self.tiling.pixels
        first = block * reg_n
        return T.Bind(T.min(first, pixels - reg_n) if pixels % reg_n else first)

    def _place(self, pixel: Any) -> tuple[Any, Any, Any]:
        """Image, row and column of an output pixel."""
        w = self.workload
        row, x = tirx.floordiv(pixel, w.out_width), tirx.floormod(pixel, w.out_width)
        if w.batch == 1:
            return 0, T.Bind(row), T.Bind(x)
        image, y = tirx.floordiv(row, w.out_height), tirx.floormod(row, w.out_height)
        return T.Bind(image), T.Bind(y), T.Bind(x)

    def _pack(self, panel: Any, at: Any, block: Any, ic: _Part, chunk_at: Any) -> None:
        """Copy the pixels of a register tile that a pass reads to ``panel[at, chunk_at…]``."""
        w, start = self.workload, self._first_pixel(block)
        places = [self._place(start + j) for j in range(self.scheme.reg_n)]
        # One loop for all pixels: LLVM would unroll each of their own.
        with T.serial(ic.count) as i:
            first = (ic.first + i) * self.lanes
            for j, (image, y, x) in enumerate(places):
                y, x = y * w.stride[0] - w.padding[0], x * w.stride[1] - w.padding[1]
                found, channel, inside = place_of(w, image, first, w.image_channels)
                source, target = (found, channel, y, x), (at, chunk_at + i, j)
                if any(w.padding):
                    inside = (*inside, y >= 0, y < w.height, x >= 0, x < w.width)
                if not inside:
                    self._pack_vector(panel, target, source)
                    continue
                with T.If(tirx.all(*inside)):
                    with T.Then():
                        self._pack_vector(panel, target, source)
                    with T.Else():
                        zero = splat(tirx.const(0, self.workload.numerics.data), self.lanes)
                        T.buffer_store(panel, zero, [*target, self._every])

    def _pack_vector(self, panel: Any, target: tuple[Any, ...], source: tuple[Any, ...]) -> None:
        """Copy a vector of channels of one pixel, with the prologue."""
        image, channel, y, x = source
        chunk, lane = self._chunk_of(channel, self.scheme.ic_bn)
        with T.vectorized(self.lanes) as o:
            index = (image, chunk, y, x, lane + o)
            value = apply_steps(self._data[index], self.workload.prologue, self._before, index)
            T.buffer_store(panel, value, [*target, o])

    def _chunk_of(self, channel: Any, block: int) -> tuple[Any, Any]:
        """Chunk and lane, in a layout of that block, of the first channel of a vector."""
        return T.Bind(tirx.floordiv(channel, block)), T.Bind(tirx.floormod(channel, block))

    def _accumulators(self, sums: Any, at: Any, ic: _Part) -> Any:
        """Allocate a register tile's sums: zeros in the first pass, or those of the one before."""
        shape = (self.scheme.reg_n, self.tiling.vectors, self.lanes)
        acc = T.alloc_buffer(shape, self.workload.numerics.sum, scope="local", layout=None)

        def fill(value: Callable[[int, int], Any]) -> None:
            for j, v in self._places:
                T.buffer_store(acc, value(j, v), [j, v, self._every])

        zero = splat(tirx.const(0, self.workload.numerics.sum), self.lanes)
        if sums is None:
            fill(lambda j, v: zero)
            return acc
        with T.If(ic.number == 0):
            with T.Then():
                fill(lambda j, v: zero)
            with T.Else():
                fill(lambda j, v: sums[at, j, span(v * self.lanes, self.lanes)])
        return acc

    def _stored_pixel(self, start: Any, chunk: Any) -> Pixel:
        """Return the reader of an input's own pixels ``start…``."""
        chunk, lane = self._chunk_of(chunk * self.lanes, self.scheme.ic_bn)
        return lambda j, k: self._data[0, chunk, 0, start + j, lane + k]

    def _each_chunk(self, ic: _Part, multiply: Callable[[Any, int], None]) -> None:
        """Emit the loop over a pass's vectors of input channels: the very last may be shorter."""
        rest = self.workload.in_channels % self.lanes
        passes = self.tiling.passes
        last = 1 if passes == 1 else T.Select(ic.number == passes - 1, 1, 0)
        with T.serial(ic.count - last if rest else ic.count) as chunk:
            multiply(chunk, self.lanes)
        if rest and passes == 1:
            multiply(ic.count - 1, rest)
        elif rest:
            with T.If(ic.number == passes - 1), T.Then():
                multiply(ic.count - 1, rest)

    def _multiply(self, acc: Any, oc: Any, first: Any, channels: int, pixel: Pixel) -> None:
        """Add the products of input channels ``first…``, which are of one vector.

        In a loop where a multiply-add may broadcast: of steps that are written out LLVM moves the
        broadcasts ahead, into registers that it then lacks for sums.
        """
        lanes, unit = self.lanes, self._target.dot_unit(self.workload.numerics)

        def step(k: Any) -> None:
            taps = [
                T.Bind(self._weights[oc, first + k, span(v * lanes, lanes)])
                for v in range(self.tiling.vectors)
            ]
            for j in range(self.scheme.reg_n):
                pixels = T.Bind(splat(pixel(j, k), lanes))
                for v, tap in enumerate(taps):
                    at = [j, v, self._every]
                    T.buffer_store(acc, acc[j, v, self._every] + pixels * tap, at)

        if unit.broadcasts_from_memory:
            with T.serial(channels) as k:
                step(k)
            return
        for k in range(channels):
            step(k)

    def _prefetch(self, oc: _Part, o: Any, ic: _Part, visit: Any) -> None:
        """Ask for the weights of the next register tile of output channels, or of the next pass.

        They are as many as those in use, and all the strip's register tiles have time for it, and
        for those of the next layer, which follow in the artifact.
        """
        t = self.tiling
        elements = self.lanes * self.scheme.reg_oc  # of a visit
        row, place = oc.first + o + 1, ic.first * self.lanes * self.scheme.reg_oc
        if t.passes > 1:
            last = o + 1 == oc.count
            row = T.Select(last, oc.first, row)
            place = place + T.Select(last, ic.count * elements, 0)
        place = place + fraction(visit, elements, t.strip_blocks, self._target)
        each = LINE // bytes_of(self.workload.numerics.weights)
        for line in range(ceil_div(elements, each * t.strip_blocks)):
            column = place + line * each
            T.evaluate(prefetch_to_l2(self._weights, [row, 0, column]))
            if fetches_next(t.weight_bytes, self._target):
                T.evaluate(prefetch_to_l2(self._weights, [row + t.oc_blocks, 0, column]))

    def _prefetch_pixels(self, start: Any, chunk: Any) -> None:
        """Ask for a vector of channels of the next register tile's pixels.

        The first output channels of a task find none of them in L2 where another thread wrote them,
        and a piece of a row for each vector of channels is nothing that processors foresee.
        """
        chunk, lane = self._chunk_of(chunk * self.lanes, self.scheme.ic_bn)
        for j in range(self.scheme.reg_n):
            T.evaluate(prefetch_to_l2(self._data, [0, chunk, 0, start + j, lane]))

    def _leave(self, acc: Any, sums: Any, at: Any, ic: _Part, oc: Any, start: Any) -> None:
        """Store a register tile's sums: to the output with the epilogue after the last pass."""
        if sums is None:
            self._store(acc, oc, start)
            return
        with T.If(ic.number == self.tiling.passes - 1):
            with T.Then():
                self._store(acc, oc, start)
            with T.Else():
                for j, v in self._places:
                    place = [at, j, span(v * self.lanes, self.lanes)]
                    T.buffer_store(sums, acc[j, v, self._every], place)

    def _store(self, acc: Any, oc: Any, start: Any) -> None:
        """Store a register tile, but for the vectors that overhang the output's channels."""
        oc_bn, reg_oc = self.scheme.oc_bn, self.scheme.reg_oc
        existing = ceil_div(self.workload.out_channels, oc_bn) * oc_bn
        places = [self._output_place(start + j) for j in range(self.scheme.reg_n)]
        for v in range(self.tiling.vectors):
            channel = oc * reg_oc + v * self.lanes
            chunk, lane = self._chunk_of(channel, oc_bn)
            if self.tiling.oc_blocks * reg_oc - reg_oc + (v + 1) * self.lanes <= existing:
                self._store_vector(acc, v, places, chunk, lane)
                continue
            with T.If(channel < existing), T.Then():
                self._store_vector(acc, v, places, chunk, lane)

    def _output_place(self, pixel: Any) -> tuple[Any, Any, Any]:
        """Image, row and column of an output pixel; an image's pixels count as one row."""
        return (0, 0, pixel) if self.workload.batch == 1 else self._place(pixel)

    def _store_vector(
        self, acc: Any, v: int, places: Sequence[tuple[Any, Any, Any]], chunk: Any, lane: Any
    ) -> None:
        for j, (image, y, x) in enumerate(places):
            with T.vectorized(self.lanes) as o:
                index = (image, chunk, y, x, lane + o)
                value = epilogue_value(acc[j, v, o], self.workload, self._behind, index)
                value = as_stored(value, self.workload, self.scheme.oc_bn, index)
                T.buffer_store(self._output, value, list(index))
