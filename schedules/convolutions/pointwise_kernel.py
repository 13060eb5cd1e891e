"""The loop nest of a 1x1 convolution as a blocked matrix product: pack, multiply, store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.pixel_tiles import (
    Part,
    Pixel,
    Place,
    TileEmitter,
    first_pixel,
    part,
)
from neocpu.schedules.convolutions.pointwise_tiling import Tiling
from neocpu.schedules.tir.builder import fraction, prefetch_to_l2, span, splat
from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import varies


def _panel_pixel(panel: Any, at: Any, chunk: Any) -> Pixel:
    return lambda j, k: panel[at, chunk, j, k]


class Emitter(TileEmitter):
    """An emitter of the loop nest, created inside the builder's frame."""

    _tiling: Tiling

    def __init__(
        self, tiling: Tiling, target: CpuTarget, data: Any, weights: Any, rest: Sequence[Any]
    ) -> None:
        super().__init__(tiling, target, data, weights, rest)
        self._reads_ahead = not tiling.packs and target.isa != "neon"

    def emit(self) -> None:
        t = self._tiling
        shared = None
        if t.shares_panel:
            shared = self._panel(t.blocks, t.chunks, self._scheme.reg_n, self._lanes)
            with T.parallel(t.blocks * t.passes) as task:
                block = T.Bind(tirx.floordiv(task, t.passes))
                ic = part(tirx.floormod(task, t.passes), t.chunks, t.passes)
                self._pack(shared, block, block, ic, ic.first)
        with T.parallel(t.tasks) as task:
            # A group's strips follow each other: its weights stay in the thread's L2.
            oc = part(tirx.floordiv(task, t.strips), t.oc_blocks, t.groups)
            strip = part(tirx.floormod(task, t.strips), t.blocks, t.strips)
            self._task(oc, strip, shared)

    def _task(self, oc: Part, strip: Part, shared: Any) -> None:
        t, scheme = self._tiling, self._scheme
        own = sums = None
        if t.packs and shared is None:
            own = self._panel(t.strip_blocks, t.pass_chunks, scheme.reg_n, self._lanes)
        if t.passes > 1:
            shape = (t.group_blocks * t.strip_blocks, scheme.reg_n, scheme.reg_oc)
            sums = T.alloc_buffer(shape, self._workload.numerics.sum, layout=None)
        with T.serial(t.passes) as turn:
            ic = part(turn, t.chunks, t.passes)
            if own is not None:
                with T.serial(strip.count) as i:
                    self._pack(own, i, strip.first + i, ic, 0)
            with T.serial(oc.count) as o, T.serial(strip.count) as i:
                start = first_pixel(t, strip.first + i)
                after = first_pixel(t, strip.first + i + 1) if self._reads_ahead else None
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
                        pixel = self._stored_pixel(0, start, ic.first + chunk)
                    first = (ic.first + chunk) * self._lanes
                    self._multiply(acc, oc.first + o, first, channels, pixel)

                self._each_chunk(ic, multiply)
                self._leave(acc, sums, o * t.strip_blocks + i, ic, oc.first + o, start)

    def _panel(self, *shape: int) -> Any:
        return T.alloc_buffer(shape, self._workload.numerics.data, layout=None)

    @contextmanager
    def _existing(self, pixel: int) -> Iterator[None]:
        if not self._tiling.overhangs:
            yield
            return
        with T.If(self._start + pixel < self._tiling.pixels), T.Then():
            yield

    def _place_of(self, pixel: Any) -> Place:
        w = self._workload
        row, x = tirx.floordiv(pixel, w.out_width), tirx.floormod(pixel, w.out_width)
        if not varies(w.batch) and w.batch == 1:
            return 0, T.Bind(row), T.Bind(x)
        image, y = tirx.floordiv(row, w.out_height), tirx.floormod(row, w.out_height)
        return T.Bind(image), T.Bind(y), T.Bind(x)

    def _pack(self, panel: Any, at: Any, block: Any, ic: Part, chunk_at: Any) -> None:
        """Copy a register tile's pixels for one pass to ``panel[at, chunk_at…]``."""
        w, start = self._workload, first_pixel(self._tiling, block)
        pixels = [start + j for j in range(self._scheme.reg_n)]
        if self._tiling.overhangs:
            pixels = [T.Bind(T.min(pixel, self._tiling.pixels - 1)) for pixel in pixels]
        places = [self._place_of(pixel) for pixel in pixels]
        # There is one loop for all pixels, because LLVM would unroll a loop for each.
        with T.serial(ic.count) as i:
            first = (ic.first + i) * self._lanes
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
                        zero = splat(tirx.const(0, self._workload.numerics.data), self._lanes)
                        T.buffer_store(panel, zero, [*target, self._every])

    def _accumulators(self, sums: Any, at: Any, ic: Part) -> Any:
        """Allocate a register tile's sums: zeros in the first pass, later those of the last one."""
        acc = self._sums()
        if sums is None:
            self._fill(acc, lambda j, v: self._zero)
            return acc
        with T.If(ic.number == 0):
            with T.Then():
                self._fill(acc, lambda j, v: self._zero)
            with T.Else():
                self._fill(acc, lambda j, v: sums[at, j, span(v * self._lanes, self._lanes)])
        return acc

    def _each_chunk(self, ic: Part, multiply: Callable[[Any, int], None]) -> None:
        """Emit the loop over a pass's vectors of input channels; the last vector may be shorter."""
        rest = self._workload.in_channels % self._lanes
        passes = self._tiling.passes
        last = 1 if passes == 1 else T.Select(ic.number == passes - 1, 1, 0)
        with T.serial(ic.count - last if rest else ic.count) as chunk:
            multiply(chunk, self._lanes)
        if rest and passes == 1:
            multiply(ic.count - 1, rest)
        elif rest:
            with T.If(ic.number == passes - 1), T.Then():
                multiply(ic.count - 1, rest)

    def _prefetch(self, oc: Part, o: Any, ic: Part, visit: Any) -> None:
        """Prefetch the weights of the next register tile or pass, as many as those in use, spread
        over the strip; and the next layer's, which follow in the artifact.
        """
        t = self._tiling
        elements = self._lanes * self._scheme.reg_oc  # elements of a visit
        row, place = oc.first + o + 1, ic.first * self._lanes * self._scheme.reg_oc
        if t.passes > 1:
            last = o + 1 == oc.count
            row = T.Select(last, oc.first, row)
            place = place + T.Select(last, ic.count * elements, 0)
        place = place + fraction(visit, elements, t.strip_blocks, self._target)
        self._fetch_weights(row, place, elements, t.strip_blocks)

    def _prefetch_pixels(self, start: Any, chunk: Any) -> None:
        """Prefetch a vector of channels of the next register tile's pixels.

        The first output channels of a task do not find pixels in L2 that another thread wrote, and
        hardware prefetchers do not predict a piece of a row for each vector of channels.
        """
        chunk, lane = self._chunk_of(chunk * self._lanes, self._scheme.ic_bn)
        for j in range(self._scheme.reg_n):
            T.evaluate(prefetch_to_l2(self._data, [0, chunk, 0, start + j, lane]))

    def _leave(self, acc: Any, sums: Any, at: Any, ic: Part, oc: Any, start: Any) -> None:
        """Store a register tile in ``sums``; after the last pass as output, with the epilogue."""
        if sums is None:
            self._store_tile(acc, oc, start)
            return
        with T.If(ic.number == self._tiling.passes - 1):
            with T.Then():
                self._store_tile(acc, oc, start)
            with T.Else():
                for j, v in self._places:
                    place = [at, j, span(v * self._lanes, self._lanes)]
                    T.buffer_store(sums, acc[j, v, self._every], place)

    def _store_tile(self, acc: Any, oc: Any, start: Any) -> None:
        """Store the sums of pixels from ``start`` on; the pixels of an image form one row."""
        first = (start + j for j in range(self._scheme.reg_n))
        batch, self._start = self._workload.batch, start
        is_row = not varies(batch) and batch == 1
        places = [(0, 0, pixel) if is_row else self._place_of(pixel) for pixel in first]
        self._store(acc, oc, self._tiling.oc_blocks, places)
