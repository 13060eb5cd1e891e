"""Pixel shuffles: DepthToSpace and SpaceToDepth.

Rows and columns have factors of their own, and the channels of one part are adjacent. In NCHW[x]c
whole blocks are copied if these channels fill blocks; otherwise lanes are shifted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.concat import emit_row
from neocpu.schedules.operators.join_template import SHIFT_FACTOR
from neocpu.schedules.tir.builder import build_kernel, for_vectors, loop_nest, span, task_loop
from neocpu.schedules.vocabulary.layout import NCHW, Format, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

Shape4 = tuple[int, int, int, int]

# The cost of copying a pixel alone, for cropped NCHW.
_CYCLES_PER_PIXEL: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleWorkload:
    """A shuffle from ``(N, C * rows * columns, H, W)`` to a finer grid of pixels, or back.

    Channel ``(i * columns + j) * C + c`` of a coarser pixel is channel ``c`` of finer pixel
    ``(i, j)`` in it. For
    volumes, stored as depth slices, each slice of the coarser grid may be several of the finer one:
    then ``(a * rows + i) * columns + j`` is the part ``(i, j)`` of slice ``a`` among them.

    - `coarse`: the logical NCHW shape of the coarser grid.
    - `rows`, `columns`: the finer pixels in a coarser one, down and across.
    - `spreads`: whether channels become pixels, instead of pixels channels.
    - `top`, `left`: the rows and columns that are cropped before a finer grid that is the output.
    - `size`: the height and width of the finer grid after cropping.
    - `frames`: the finer slices in each coarser slice of the input.
    """

    coarse: Shape4
    rows: int
    columns: int
    spreads: bool
    top: int
    left: int
    size: tuple[int, int]
    frames: int = 1

    def __str__(self) -> str:
        read, made = ("x".join(map(str, shape)) for shape in (self.shape, self.output_shape))
        return f"{read} -> {made}"

    @property
    def parts(self) -> int:
        """The number of pixels of the finer grid in one of the coarser, over all slices."""
        return self.frames * self.rows * self.columns

    @property
    def channels(self) -> int:
        """The number of channels of the finer grid."""
        return self.coarse[1] // self.parts

    @property
    def fine(self) -> Shape4:
        """The logical NCHW shape of the finer grid."""
        return (self.coarse[0] * self.frames, self.channels, *self.size)

    @property
    def shape(self) -> Shape4:
        """The shape of the input."""
        return self.coarse if self.spreads else self.fine

    @property
    def output_shape(self) -> Shape4:
        """The shape of the output."""
        return self.fine if self.spreads else self.coarse

    @property
    def is_cropped(self) -> bool:
        """Whether some pixels are left out."""
        return self.size != (self.coarse[2] * self.rows, self.coarse[3] * self.columns)

    def columns_of(self, j: int) -> range:
        """Return the columns of the coarser grid whose part ``j`` is in the finer one."""
        first = max(0, ceil_div(self.left - j, self.columns))
        return range(
            first, min(self.coarse[3], ceil_div(self.size[1] + self.left - j, self.columns))
        )


def estimate(workload: ShuffleWorkload, form: Format, target: CpuTarget, threads: int) -> float:
    """Return analytic seconds: those of the bytes, or of the pixels if copied one by one."""
    size = form.bytes(workload.shape) + form.bytes(workload.output_shape)
    seconds = stream_seconds(size, target, threads)
    if not form.layout.divides(workload.channels):
        seconds *= SHIFT_FACTOR
    if form.layout == NCHW and workload.is_cropped:
        cycles = math.prod(workload.output_shape) * _CYCLES_PER_PIXEL
        seconds = max(seconds, cycles / target.frequency / threads)
    return fork_seconds(threads, target) + seconds


def lower_shuffle(workload: ShuffleWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` in ``form``, with zeros in padded lanes.

    The loop nest::

        parallel n · row of the coarser grid            # in NCHW also · channel
          for i, j: for chunk: for pixel: copy          # in NCHW vectors, (de)interleaved
    """
    parameters = [
        (name, form.shape(shape), form.dtype)
        for name, shape in (("data", workload.shape), ("output", workload.output_shape))
    ]

    def body(data: Any, output: Any) -> None:
        if form.layout == NCHW:
            emit = _spread_rows if workload.spreads else _gather_rows
            emit(workload, target.lanes(form.dtype), data, output)
        else:
            _emit_blocks(workload, data, output)

    return build_kernel(parameters, body)


def _emit_blocks(w: ShuffleWorkload, data: Any, output: Any) -> None:
    batch, _, height, width = w.coarse
    with task_loop(batch * height, math.prod(map(int, output.shape))) as task:
        image, y = task // height, task % height
        if w.spreads:
            _spread_blocks(w, (image, y), data, output)
            return

        def part(number: int, chunk: Any, x: Any, lanes: Any) -> Any:
            i, j = divmod(number, w.columns)
            return data[image, chunk, y * w.rows + i, x * w.columns + j, lanes]

        slices = [(0, w.channels)] * (w.rows * w.columns)
        emit_row(slices, output, width, part, lambda chunk, x: (image, chunk, y, x))


def _spread_blocks(w: ShuffleWorkload, row: tuple[Any, Any], data: Any, output: Any) -> None:
    image, y = row
    for frame, i in product(range(w.frames), range(w.rows)):
        to, fine = y * w.rows + i - w.top, image * w.frames + frame
        with _inside(w, to):
            for j in range(w.columns):
                start = ((frame * w.rows + i) * w.columns + j) * w.channels
                columns = w.columns_of(j)
                if not columns:
                    continue

                def pixel(_: int, chunk: Any, x: Any, lanes: Any, at: int = columns.start) -> Any:
                    return data[image, chunk, y, at + x, lanes]

                row_of = (fine, to, columns.start * w.columns + j - w.left)

                def place(chunk: Any, x: Any, row: Any = row_of) -> tuple[Any, ...]:
                    return row[0], chunk, row[1], x * w.columns + row[2]

                emit_row([(start, start + w.channels)], output, len(columns), pixel, place)


def _spread_rows(w: ShuffleWorkload, lanes: int, data: Any, output: Any) -> None:
    batch, _, height, width = w.coarse
    with loop_nest((batch, w.channels, height), math.prod(w.output_shape)) as (image, channel, y):
        for frame, i in product(range(w.frames), range(w.rows)):
            to, first = y * w.rows + i - w.top, (frame * w.rows + i) * w.columns
            fine = image * w.frames + frame

            def read(j: int, at: Any, first: int = first) -> Any:
                return data[image, (first + j) * w.channels + channel, y, at]

            def store(at: Any, value: Any, to: Any = to, fine: Any = fine) -> None:
                T.buffer_store(output, value, [fine, channel, to, at])

            def interleave(at: Any, count: int, read: Any = read, store: Any = store) -> None:
                vectors = [read(j, span(at, count)) for j in range(w.columns)]
                vectors = [T.Bind(vector) for vector in vectors]
                for j in range(w.columns):
                    mixed = [
                        place % w.columns * count + place // w.columns
                        for place in range(j * count, (j + 1) * count)
                    ]
                    store(span(at * w.columns + j * count, count), _mixed(vectors, mixed))

            with _inside(w, to):
                if not w.is_cropped:
                    for_vectors(width, lanes, interleave)
                    continue
                for j in range(w.columns):
                    columns = w.columns_of(j)
                    with T.serial(len(columns)) as x:
                        at = columns.start + x
                        store(at * w.columns + j - w.left, read(j, at))


def _gather_rows(w: ShuffleWorkload, lanes: int, data: Any, output: Any) -> None:
    batch, _, height, width = w.coarse
    with loop_nest((batch, w.channels, height), math.prod(w.output_shape)) as (image, channel, y):
        for i in range(w.rows):
            row = y * w.rows + i

            def deinterleave(at: Any, count: int, i: int = i, row: Any = row) -> None:
                starts = [at * w.columns + part * count for part in range(w.columns)]
                vectors = [data[image, channel, row, span(start, count)] for start in starts]
                vectors = [T.Bind(vector) for vector in vectors]
                for j in range(w.columns):
                    value = _mixed(vectors, [j + w.columns * place for place in range(count)])
                    to = (i * w.columns + j) * w.channels + channel
                    T.buffer_store(output, value, [image, to, y, span(at, count)])

            for_vectors(width, lanes, deinterleave)


def _mixed(vectors: list[Any], lanes: list[int]) -> Any:
    """Return lanes of vectors of equal length, numbered consecutively."""
    if len(lanes) == 1:  # these are not vectors
        return vectors[lanes[0]]
    return vectors[0] if len(vectors) == 1 else T.Shuffle(vectors, lanes)


@contextmanager
def _inside(w: ShuffleWorkload, row: Any) -> Iterator[None]:
    if not w.is_cropped:
        yield
        return
    with T.If(tirx.all(row >= 0, row < w.size[0])), T.Then():
        yield
