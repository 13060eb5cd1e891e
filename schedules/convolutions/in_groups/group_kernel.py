"""The loop nest of grouped convolutions: register tiles that read the image in place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.dot_instructions import add_products
from neocpu.schedules.convolutions.in_groups.widened_rows import WidenedRows
from neocpu.schedules.convolutions.kernel_nest import VectorStore
from neocpu.schedules.operators.epilogue import apply_steps, buffer_readers, in_type
from neocpu.schedules.tir import neon
from neocpu.schedules.tir.bfloat16 import bits_of, rounds_vectors
from neocpu.schedules.tir.builder import span, splat, task_loop
from neocpu.schedules.tir.input_pixels import taps_inside
from neocpu.schedules.vocabulary.frame_reads import frame_of
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.scheme import GroupScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import larger, smaller, typical_of
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

_BIAS = EpilogueOp("bias_add")

# A function that emits its argument for each row of the window, and whether these are unrolled
# from row 0 on, instead of a loop over those in the image.
_Taps = tuple[Callable[[Callable[[Any], None]], None], bool]
# The first column of a tile with the same columns inside the image, None for a tile inside, or for
# one pixel the column of its first tap, the first tap inside the image and the one after the last.
_Like = int | tuple[Any, Any, Any] | None
# The functions that return a step's pixel of a column, and its weights of a tap.
_Step = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]


class Emitter:
    """An emitter of the loop nest, created inside a builder's frame."""

    def __init__(
        self,
        workload: Conv2dWorkload,
        scheme: GroupScheme,
        target: CpuTarget,
        buffers: Sequence[Any],
    ) -> None:
        self._workload, self._scheme = workload, scheme
        self._unit = target.dot_unit(workload.numerics)
        self._lanes = math.gcd(self._unit.lanes, scheme.oc_bn)
        self._by_lane = self._unit.by_lane
        data, self._weights, *operands, output = buffers
        self._data, self._output = bits_of(data), bits_of(output)
        self._zero = operands.pop(0) if workload.pads_with_zero_point else None
        self._widened: Any | None = None  # the rows of another form that pixels are read from
        self._lane: Any | None = None  # first lane of the vector whose rows are widened
        self._width = workload.image_channels // workload.groups
        steps, readers = workload.epilogue, buffer_readers(workload.epilogue, operands)
        # On NEON sums start from the bias if the epilogue begins with it: additions are no faster
        # than multiply-adds there, and only nine products of a 3x3 window hide one.
        begins = self._by_lane and self._lanes == neon.LANES and steps[:1] == (_BIAS,)
        self._bias = readers[0] if begins else None
        if begins:
            steps, readers = steps[1:], readers[1:]
        self._epilogue = (steps, readers)
        products = target.find_dot_unit(BFLOAT16_PRODUCTS)
        self._results = VectorStore(
            workload=replace(workload, epilogue=steps),
            block=scheme.out_layout.block,
            lanes=self._lanes,
            readers=readers,
            output=self._output,
            rounds=self._lanes > 1 and rounds_vectors(workload.numerics.output, products),
        )

    def emit(self, bands: int, *, rows_first: bool) -> None:
        """Emit a task for each band and chunk, all chunks of a band first if ``rows_first``."""
        loads = nullcontext() if self._bias is None else neon.loads_again()
        with loads, self._results.frame():
            self._tasks(bands, rows_first)

    def _tasks(self, bands: int, rows_first: bool) -> None:
        w = self._workload
        chunks = int(self._data.shape[1])
        tasks = w.batch * chunks * bands
        with task_loop(tasks, math.prod(w.output_shape)) as task:
            image = T.Bind(task // (chunks * bands))
            if rows_first:
                band, chunk = T.Bind(task // chunks % bands), T.Bind(task % chunks)
            else:
                chunk, band = T.Bind(task // bands % chunks), T.Bind(task % bands)
            first = T.Bind(band * w.out_height // bands)
            end = (band + 1) * w.out_height // bands
            self._band(image, chunk, first, T.Bind(end - first))

    def _band(self, image: Any, chunk: Any, first: Any, rows: Any) -> None:
        """Emit so many rows of an image and chunk."""
        w = self._workload
        if w.numerics.reads_float32:
            with T.serial(rows) as row:
                self._row((image, chunk), first + row)
            return
        self._widened = widened = WidenedRows(w, self._lanes, self._data, self._zero)
        with T.serial(self._vectors) as vector:
            self._lane = T.Bind(vector * self._lanes)
            with T.serial(rows) as row:
                widened.widen((image, chunk, self._lane), first, first + row)
                self._row((image, chunk), first + row)

    @property
    def _vectors(self) -> int:
        return self._scheme.oc_bn // self._lanes

    def _row(self, channels: tuple[Any, Any], y: Any) -> None:
        """Emit a row of an image and chunk, ``channels``, without taps above and below it."""
        w = self._workload
        taps, stride, dilation = w.kernel[0], w.stride[0], w.dilation[0]
        top = T.Bind(y * stride - w.padding[0])
        all_inside = (
            w.padding[0] == 0 and (w.out_height - 1) * stride + (taps - 1) * dilation < w.height
        )

        def taps_inside(emit: Callable[[Any], None]) -> None:
            first = T.Bind(T.max((dilation - 1 - top) // dilation, 0))
            end = T.min((w.height - top + dilation - 1) // dilation, taps)
            with T.serial(T.max(end - first, 0)) as kh:
                emit(first + kh)

        if not self._scheme.unroll_ker:
            self._tiles((channels, y, top), (taps_inside, False))
        elif all_inside:
            self._tiles((channels, y, top), (self._every_tap, True))
        else:
            with T.If(tirx.all(top >= 0, top + (taps - 1) * dilation < w.height)):
                with T.Then():
                    self._tiles((channels, y, top), (self._every_tap, True))
                with T.Else():
                    self._tiles((channels, y, top), (taps_inside, False))

    def _every_tap(self, emit: Callable[[Any], None]) -> None:
        for kh in range(self._workload.kernel[0]):
            emit(kh)

    def _tiles(self, place: tuple[Any, ...], taps: _Taps) -> None:
        """Emit a row's register tiles, in one loop where all columns lie in the image."""
        w, reg_n = self._workload, self._scheme.reg_n
        if self._scheme.moves_back:
            self._moved_tiles(place, taps)
            return
        count = ceil_div(w.out_width, reg_n)
        inside = [
            tile
            for tile in range(w.out_width // reg_n)
            if len(self._columns(tile * reg_n, reg_n)) == reg_n * w.kernel[1]
        ]
        first, end = (inside[0], inside[-1] + 1) if inside else (count, count)
        for tile in range(first):
            x = tile * reg_n
            self._tile(place, x, min(reg_n, w.out_width - x), x, taps)
        if inside:
            with T.serial(end - first) as tile:
                self._tile(place, (first + tile) * reg_n, reg_n, first * reg_n, taps)
        for tile in range(end, count):
            x = tile * reg_n
            self._tile(place, x, min(reg_n, w.out_width - x), x, taps)

    def _moved_tiles(self, place: tuple[Any, ...], taps: _Taps) -> None:
        """Emit a row of any width: register tiles where all columns lie in the image, the last one
        moved back, and then the pixels beside them, one by one.
        """
        w = self._workload
        stride, reach = w.stride[1], (w.kernel[1] - 1) * w.dilation[1]
        first = smaller(ceil_div(w.padding[1], stride), w.out_width)
        end = smaller((w.width + w.padding[1] - reach - 1) // stride + 1, w.out_width)
        inside = larger(end - first, 0)
        reg_n = max(1, min(self._scheme.reg_n, typical_of(inside)))
        # There is no tile in a row that does not fill one.
        count = ceil_div(inside, reg_n) * smaller(inside // reg_n, 1)
        tiled = inside * smaller(inside // reg_n, 1)
        with T.serial(count) as tile:
            x = T.Bind(first + T.min(tile * reg_n, larger(inside - reg_n, 0)))
            self._tile(place, x, reg_n, None, taps)
        with T.serial(w.out_width - tiled) as number:
            # TVM would leave out a sum with nothing, which other sizes need.
            behind = tirx.Add(number, tirx.const(int(tiled), "int32"))
            x = T.Bind(tirx.Select(number < first, number, behind))
            self._edge_pixel(place, x, taps)

    def _edge_pixel(self, place: tuple[Any, ...], x: Any, taps: _Taps) -> None:
        """Emit an output pixel without the taps beside the image."""
        w = self._workload
        stride, dilation = w.stride[1], w.dilation[1]
        left = T.Bind(x * stride - w.padding[1])
        first = T.Bind(T.max((dilation - 1 - left) // dilation, 0))
        end = T.Bind(T.min((w.width - left + dilation - 1) // dilation, w.kernel[1]))
        self._tile(place, x, 1, (left, first, end), (taps[0], False))

    def _columns(self, x: int | None, width: int) -> list[tuple[int, int, int]]:
        """Return ``(input column - x * stride, output column - x, tap)`` inside the image, in which
        all columns lie if ``x`` is None.
        """
        w = self._workload
        found = []
        for j in range(width):
            for kw in range(w.kernel[1]):
                offset = j * w.stride[1] + kw * w.dilation[1] - w.padding[1]
                if x is None or 0 <= x * w.stride[1] + offset < w.width:
                    found.append((offset, j, kw))
        return found

    def _tile(self, place: tuple[Any, ...], x: Any, width: int, like: _Like, taps: _Taps) -> None:
        """Emit ``width`` output pixels from column ``x``, for one vector of the chunk or all."""
        (image, chunk), y, top = place
        if self._lane is not None:
            self._vector_tile((image, chunk, self._lane, y, top), x, width, like, taps)
            return
        with T.serial(self._vectors) as vector:
            lane = T.Bind(vector * self._lanes)
            self._vector_tile((image, chunk, lane, y, top), x, width, like, taps)

    def _vector_tile(
        self, place: tuple[Any, ...], x: Any, width: int, like: _Like, taps: _Taps
    ) -> None:
        """Emit a register tile of one vector of channels; see `_tile`."""
        image, chunk, lane, y, top = place
        w, lanes, every = self._workload, self._lanes, span(0, self._lanes)
        emit_rows, is_unrolled = taps
        users: dict[int, list[tuple[int, int]]] = defaultdict(list)
        columns = [] if isinstance(like, tuple) else self._columns(like, width)
        for offset, j, kw in columns:
            users[offset].append((j, kw))
        acc = T.alloc_buffer((width, lanes), w.numerics.sum, scope="local", layout=None)
        channel = chunk * self._scheme.oc_bn + lane
        late = is_unrolled and self._width == 1 and self._bias is not None and not w.frames
        begun = _first_uses(columns) if late else {}
        others = set(range(width)).difference(*begun.values())
        self._begin(acc, sorted(others), image, channel)

        def tap_row(kh: Any) -> None:
            row = T.Bind(self._row_number(top + kh * w.dilation[0]))
            for pixel_at, weight_at in self._steps(image, chunk, lane, row):
                if isinstance(like, tuple):
                    left, first, end = like
                    with T.serial(T.max(end - first, 0)) as turn:
                        kw = T.Bind(first + turn)
                        pixel = T.Bind(pixel_at(left + kw * w.dilation[1]))
                        value = self._multiplied(acc[0, every], pixel, T.Bind(weight_at(kh, kw)))
                        T.buffer_store(acc, value, [0, every])
                    continue
                weights = [T.Bind(weight_at(kh, kw)) for kw in range(w.kernel[1])]
                for offset in sorted(users):
                    self._begin(acc, begun.pop(offset, []), image, channel)
                    pixel = T.Bind(pixel_at(x * w.stride[1] + offset))
                    for j, kw in users[offset]:
                        value = self._multiplied(acc[j, every], pixel, weights[kw])
                        T.buffer_store(acc, value, [j, every])

        emit_rows(tap_row)
        out_bn = self._scheme.out_layout.block
        out = T.Bind(channel // out_bn), T.Bind(channel % out_bn)
        for j in range(width):
            if self._results.rounds:
                self._results.store(acc, (j,), (image, out[0], y, x + j), out[1])
                continue
            with T.vectorized(lanes) as o:
                index = (image, out[0], y, x + j, out[1] + o)
                value = apply_steps(acc[j, o], *self._epilogue, index)
                T.buffer_store(self._output, in_type(value, w.numerics.output), list(index))

    def _multiplied(self, sums: Any, pixel: Any, weights: Any) -> Any:
        if self._unit.group == 1:
            return sums + pixel * weights
        return add_products(sums, (pixel,), (weights,), self._unit)

    def _row_number(self, row: Any) -> Any:
        """Return ``row``, which lies in the image, masked: from a sum, LLVM moves the padding out
        as a negative offset of all loads, for which AArch64's have no room.
        """
        if not self._by_lane:
            return row
        return tirx.bitwise_and(row, (1 << (self._workload.height - 1).bit_length()) - 1)

    def _begin(self, acc: Any, columns: Sequence[int], image: Any, channel: Any) -> None:
        """Initialise the sums of some columns, with the bias if the epilogue begins with it."""
        if not columns:
            return
        if self._bias is None:
            for j in columns:
                zeros = splat(tirx.const(0, self._workload.numerics.sum), self._lanes)
                T.buffer_store(acc, zeros, [j, span(0, self._lanes)])
            return
        out_bn = self._scheme.out_layout.block
        chunk, lane = T.Bind(channel // out_bn), T.Bind(channel % out_bn)
        # The bias is loaded for each sum: a copy takes half a multiply-add's time, and a load none.
        for j in columns:
            bias = neon.load_again(self._bias(image, chunk, 0, 0, lane))
            T.buffer_store(acc, bias, [j, span(0, self._lanes)])

    def _steps(self, image: Any, chunk: Any, lane: Any, row: Any) -> Iterator[_Step]:
        """Yield each input channel's contribution, in volumes of each slice, to output vectors."""
        frames = self._workload.frames
        if frames is None:
            yield from self._steps_of(image, 0, chunk, lane, row)
            return
        if frames.reads_outside:
            place = image if self._workload.volumes == 1 else image % frames.out_depth
            first, count = taps_inside(frames, T.Bind(place * frames.stride - frames.padding[0]))
        else:
            first, count = 0, frames.kernel
        with T.serial(count) as turn:
            tap = T.Bind(first + turn)
            found = T.Bind(frame_of(self._workload, image, tap)[0])
            yield from self._steps_of(found, tap * self._width, chunk, lane, row)

    def _steps_of(
        self, image: Any, before: Any, chunk: Any, lane: Any, row: Any
    ) -> Iterator[_Step]:
        """Yield the steps of one image, whose weights follow those of ``before`` channels.

        If groups are narrower than a vector, their input channels are the same lanes: each step
        spreads one channel of each group over its group, or a word of channels. Otherwise channels
        are read one by one.
        """
        lanes, width, group = self._lanes, self._width, self._unit.group
        weights = self._weights

        def weight_at(i: Any) -> Callable[[Any, Any], Any]:
            vector = span(lane * group, lanes * group)
            return lambda kh, kw: weights[chunk, before + i, kh, kw, vector]

        if group > 1:
            assert self._widened is not None
            kind = f"{self._workload.numerics.data}x{lanes * group}"
            for word in range(width // group):

                def word_at(column: Any, word: int = word, rows: Any = self._widened) -> Any:
                    return tirx.reinterpret(kind, rows.pixel(row, column, word))

                yield word_at, weight_at(word)
            return
        if width < lanes or width == 1:
            for i in range(width):
                spread = [at // width * width + i for at in range(lanes)]

                def pixel_at(column: Any, spread: list[int] = spread) -> Any:
                    if self._widened is None:
                        vector = self._data[image, chunk, row, column, span(lane, lanes)]
                    else:
                        vector = self._widened.pixel(row, column)
                    return vector if width == 1 else T.Shuffle([vector], spread)

                yield pixel_at, weight_at(i)
            return
        block = self._scheme.oc_bn
        first = T.Bind((chunk * block + lane) // width * width)
        each = lanes if self._by_lane else 1  # every channel of a vector is a lane
        with T.serial(width // each) as i:
            for k in range(each):
                channel = i * each + k
                source = T.Bind((first + channel) // block), T.Bind((first + channel) % block)

                def scalar_at(column: Any, source: tuple[Any, Any] = source) -> Any:
                    return splat(self._data[image, source[0], row, column, source[1]], lanes)

                yield scalar_at, weight_at(channel)


def _first_uses(columns: Sequence[tuple[int, int, int]]) -> dict[int, list[int]]:
    """Return the sums that the pixels of a row initialise: for every two, the first pixel.

    LLVM does not move loads of the bias. All loads at once would stall the pipes; between two
    pixels they would separate loads that belong in one instruction.
    """
    offsets = sorted({offset for offset, _, _ in columns})
    firsts = {j: offset for offset, j, _ in reversed(columns)}
    begun: dict[int, list[int]] = defaultdict(list)
    for j, offset in sorted(firsts.items()):
        begun[offsets[offsets.index(offset) // 2 * 2]].append(j)
    return begun
