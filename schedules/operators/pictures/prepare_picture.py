"""Conversion of a byte picture to a network's input: resized, normalised and laid out at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.either import either
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    for_vectors,
    part_start,
    span,
    splat,
    task_loop,
)

#: The most products in one expression; longer sums are stored and added to: code stays short.
MAX_TERMS: Final = 8

#: The number of columns that are summed at a time. A model is imported once for several CPUs, and
#: LLVM splits vectors that are too wide for one of them.
LANES: Final = 16

#: The number of lanes for a pixel: the first colour of the next pixel is computed too, and dropped.
PIXEL: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureWorkload:
    """The conversion of pictures of one size.

    - `images`, `height`, `width`, `colours`: the extents of the pictures; colours are 1 or 3.
    - `planar`: whether pictures are stored as (N, C, H, W) instead of (N, H, W, C).
    - `reversed`: whether the network's first colour is the picture's last.
    - `size`: the height and width of the network's input.
    - `planes`: whether the network's input is (N, C, H, W) instead of (N, H, W, C).
    - `region`: top, left, height and width of the part of the input that the picture fills.
    - `columns`: the first column of the picture that is read, and the one after the last.
    - `taps`: the number of rows, and of pixels in a row, that are summed for a pixel.
    - `border`: the value of the rest of the input, as a byte.
    """

    images: int
    height: int
    width: int
    colours: int
    planar: bool
    reversed: bool
    size: tuple[int, int]
    planes: bool
    region: tuple[int, int, int, int]
    columns: tuple[int, int]
    taps: tuple[int, int]
    border: float

    @property
    def picture(self) -> tuple[int, ...]:
        """The shape of the picture."""
        if self.planar:
            return (self.images, self.colours, self.height, self.width)
        return (self.images, self.height, self.width, self.colours)

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the output."""
        if self.planes:
            return (self.images, self.colours, *self.size)
        return (self.images, *self.size, self.colours)

    @property
    def interleaved(self) -> int:
        """The number of colours that lie side by side."""
        return 1 if self.planar else self.colours


def lower_prepare_picture(w: PictureWorkload) -> Any:
    """Return the scheduled ``PrimFunc`` that resizes and normalises pictures.

    Its arguments are the picture (uint8), for each row of the region its first row of the picture
    (int32) and the weights of that and the next ones (float32), the same for columns, whose place
    is counted in bytes from the first column that is read, factors and offsets of the picture's
    colours (float32, `PIXEL` or one a colour), and the output (float32)::

        parallel images · planes · parts of the rows
          for row:                                   # of the part
            sums = sum of weight * row of bytes      # vectors along the row, all colours
            for pixel:
              value = sum of weight * sums[pixel]    # a vector of one pixel's colours
              output = value * factor + offset       # a store for each colour
    """
    top, _, height, width = w.region
    parameters = (
        ("picture", w.picture, "uint8"),
        ("first_row", (height,), "int32"),
        ("row_weights", (height, w.taps[0]), "float32"),
        ("first_column", (width,), "int32"),
        ("column_weights", (width, w.taps[1]), "float32"),
        ("factors", (lanes_of(w.colours),), "float32"),
        ("offsets", (lanes_of(w.colours),), "float32"),
        ("output", w.output, "float32"),
    )
    planes = w.colours // w.interleaved
    rows = w.size[0]
    parts = min(rows, ENOUGH_TASKS)

    def body(picture: Any, *others: Any) -> None:
        *constants, output = others
        pitch = w.width * w.interleaved
        flat = T.decl_buffer(
            (w.images * planes, w.height, pitch), "uint8", data=picture.data, layout=None
        )
        tasks = w.images * planes * parts
        with task_loop(tasks, w.images * math.prod(w.size) * w.colours) as task:
            plane, part = T.Bind(task // parts), T.Bind(task % parts)
            start = T.Bind(part_start(part, rows, parts))
            span_of_row = (w.columns[1] - w.columns[0]) * w.interleaved
            sums = T.alloc_buffer((span_of_row + PIXEL,), "float32", layout=None)
            row = _Row(w, flat, sums, constants, output, plane)
            # The last lane of the last pixel reads beyond the row.
            T.buffer_store(
                sums, splat(tirx.const(0.0, "float32"), PIXEL), [span(span_of_row, PIXEL)]
            )
            with T.serial(part_start(part + 1, rows, parts) - start) as step:
                y = T.Bind(start + step)
                filled = None if height == rows else tirx.all(y >= top, y < top + height)
                either(filled, partial(row.emit, y), partial(row.fill, y, 0, w.size[1]))

    return build_kernel(parameters, body)


def lanes_of(colours: int) -> int:
    """Return the number of lanes that a kernel uses for so many colours."""
    return PIXEL if colours > 1 else 1


class _Row:
    def __init__(
        self,
        workload: PictureWorkload,
        picture: Any,
        sums: Any,
        constants: Sequence[Any],
        output: Any,
        plane: Any,
    ) -> None:
        self._w = workload
        self._picture, self._sums, self._output, self._plane = picture, sums, output, plane
        self._first_row, self._row_weights, *rest = constants
        self._first_column, self._column_weights, self._factors, self._offsets = rest
        planes = workload.colours // workload.interleaved
        self._image, self._colour = plane // planes, plane % planes

    def emit(self, y: Any) -> None:
        """Emit a row that the picture fills, and the borders left and right of it."""
        w = self._w
        top, left, _, width = w.region
        self._sum_rows(y - top)
        self.fill(y, 0, left)
        with T.serial(width) as x:
            self._store(y, left + x, self._summed(x))
        self.fill(y, left + width, w.size[1])

    def fill(self, y: Any, start: int, end: int) -> None:
        """Emit pixels outside the picture."""
        if start < end:
            with T.serial(end - start) as x:
                lanes = 1 if self._w.interleaved == 1 else PIXEL
                self._store(y, start + x, splat(tirx.const(self._w.border, "float32"), lanes))

    def _sum_rows(self, y: Any) -> None:
        """Emit the weighted sum of the picture's rows for all columns that are read."""
        w, taps = self._w, self._w.taps[0]
        begin = w.columns[0] * w.interleaved
        length = w.columns[1] * w.interleaved - begin
        first = T.Bind(self._first_row[y])
        for start in range(0, taps, MAX_TERMS):
            chosen = range(start, min(taps, start + MAX_TERMS))
            weights = [T.Bind(self._row_weights[y, tap]) for tap in chosen]
            lines = [first + tap for tap in chosen]
            for_vectors(length, LANES, partial(self._add_rows, lines, weights, begin, start > 0))

    def _add_rows(
        self, lines: list[Any], weights: list[Any], begin: int, begun: bool, at: Any, width: int
    ) -> None:
        kind = "float32" if width == 1 else f"float32x{width}"
        total = self._sums[span(at, width)] if begun else None
        for line, weight in zip(lines, weights, strict=True):
            stored = self._picture[self._plane, line, span(begin + at, width)]
            term = stored.astype(kind) * splat(weight, width)
            total = term if total is None else total + term
        T.buffer_store(self._sums, total, [span(at, width)])

    def _summed(self, x: Any) -> Any:
        """Return the weighted sum of a row's pixels: a vector of colours, or a single one."""
        w, taps = self._w, self._w.taps[1]
        lanes = 1 if w.interleaved == 1 else PIXEL
        first = T.Bind(self._first_column[x])

        def term(tap: Any) -> Any:
            pixel = self._sums[span(first + tap * w.interleaved, lanes)]
            return pixel * splat(self._column_weights[x, tap], lanes)

        if taps <= MAX_TERMS:
            total = term(0)
            for tap in range(1, taps):
                total = total + term(tap)
            return total
        sums = T.alloc_buffer((lanes,), "float32", layout=None)
        T.buffer_store(sums, term(0), [span(0, lanes)])
        with T.serial(taps - 1) as tap:
            T.buffer_store(sums, sums[span(0, lanes)] + term(tap + 1), [span(0, lanes)])
        return sums[span(0, lanes)]

    def _store(self, y: Any, x: Any, value: Any) -> None:
        w = self._w
        if w.interleaved == 1:
            own = 0 if w.colours == 1 else self._colour
            scaled = value * self._factors[own] + self._offsets[own]
            T.buffer_store(self._output, scaled, self._place(y, x, self._turned(self._colour)))
            return
        whole = span(0, PIXEL)
        pixel = T.Bind(value * self._factors[whole] + self._offsets[whole])
        for colour in range(w.colours):
            lane = T.Shuffle([pixel], [colour])
            T.buffer_store(self._output, lane, self._place(y, x, self._turned(colour)))

    def _turned(self, colour: Any) -> Any:
        return self._w.colours - 1 - colour if self._w.reversed else colour

    def _place(self, y: Any, x: Any, colour: Any) -> list[Any]:
        return [self._image, colour, y, x] if self._w.planes else [self._image, y, x, colour]
