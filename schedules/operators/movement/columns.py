"""Columns of the windows of an image (im2col), for convolutions by weights that are data, and their
sum back to an image, ONNX's Col2Im.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.either import either
from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop

LANES = 16
MOST_WRITTEN = 8
"""The most taps of a row that are unrolled, each with known bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsWorkload:
    """Columns of windows of ``images`` images of one channel.

    - `image`, `block`: the extents of an image and of a window.
    - `pads`: the padding before each axis, then after each axis.
    """

    images: int
    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    dtype: str

    @property
    def places(self) -> tuple[int, ...]:
        """The number of windows along each axis; not positive where no window fits."""
        around = zip(self.pads[: len(self.image)], self.pads[len(self.image) :], strict=True)
        axes = zip(self.image, self.block, self.strides, self.dilations, around, strict=True)
        return tuple(
            (extent + sum(pads) - (taps - 1) * dilation - 1) // stride + 1
            for extent, taps, stride, dilation, pads in axes
        )

    @property
    def computes(self) -> str:
        """The parts of its computation that shapes do not show."""
        return f"{self.image} {self.block} {self.strides} {self.dilations} {self.pads}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the columns: ``(images, taps, *places)``."""
        return (self.images, math.prod(self.block), *self.places)

    def start(self, axis: int, tap: Any) -> Any:
        """Return the place of a tap in the first window; a negative one lies before the image."""
        return tap * self.dilations[axis] - self.pads[axis % len(self.image)]

    def bounds(self, tap: Any) -> tuple[Any, Any]:
        """Return the first window of a row whose tap is inside, and the number of such windows."""
        known = isinstance(tap, int)
        most, least = (max, min) if known else (T.max, T.min)
        start, stride = self.start(-1, tap), self.strides[-1]
        first = most(-(start // stride), 0)
        end = least((self.image[-1] - 1 - start) // stride + 1, self.places[-1])
        first = least(first, self.places[-1])
        return first, most(end - first, 0)


def lower_columns_to_image(workload: ColumnsWorkload) -> Any:
    """Return the scheduled ``PrimFunc(columns, output)``, with the output ``(images, *image)``::

    parallel image
      output[image] = 0
      for tap: for row of windows, if it is in the image:
        for vectors of the row: output[...] += columns[...]
    """
    w = workload
    size = math.prod(w.image)
    stride = w.strides[-1]

    def body(columns: Any, output: Any) -> None:
        cleared = flat(output)

        def clear(image: Any, i: Any, lanes: int) -> None:
            zeros = splat(tirx.const(0, w.dtype), lanes)
            T.buffer_store(cleared, zeros, [span(image * size + i, lanes)])

        def add(row: _Row, tap: Any, first: Any, x: Any, lanes: int) -> None:
            there = row.pixel(w, tap, first + x, lanes)
            value = columns[row.column(w, tap, first + x, lanes)]
            T.buffer_store(output, output[there] + value, list(there))

        def add_up(row: _Row) -> None:
            with _taps(w) as taps:
                for tap in taps:
                    first, count = w.bounds(tap)
                    _for_count(count, LANES if stride == 1 else 1, partial(add, row, tap, first))

        with task_loop(w.images, w.images * size) as image:
            for_vectors(size, LANES, partial(clear, image))
            with _rows(w, image) as row:
                either(row.is_inside, partial(add_up, row))

    return build_kernel(
        (("columns", w.shape, w.dtype), ("output", (w.images, *w.image), w.dtype)), body
    )


def lower_image_to_columns(workload: ColumnsWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, columns)``, with the data ``(images, *image)``::

    parallel image
      for tap: for row of windows: for vectors of the row: columns[...] = data[...]
      what lies outside the image is zeros
    """
    w = workload
    width, stride = w.places[-1], w.strides[-1]

    def body(data: Any, columns: Any) -> None:
        def clear(row: _Row, tap: Any, first: Any, x: Any, lanes: int) -> None:
            zeros = splat(tirx.const(0, w.dtype), lanes)
            T.buffer_store(columns, zeros, list(row.column(w, tap, first + x, lanes)))

        def copy(row: _Row, tap: Any, first: Any, x: Any, lanes: int) -> None:
            value = data[row.pixel(w, tap, first + x, lanes)]
            T.buffer_store(columns, value, list(row.column(w, tap, first + x, lanes)))

        def whole(row: _Row) -> None:
            with _taps(w) as taps:
                for tap in taps:
                    first, count = w.bounds(tap)
                    lanes = LANES if stride == 1 else 1
                    _for_count(first, LANES, partial(clear, row, tap, 0))
                    _for_count(count, lanes, partial(copy, row, tap, first))
                    end = first + count
                    _for_count(width - end, LANES, partial(clear, row, tap, end))

        def beside(row: _Row) -> None:
            with _taps(w) as taps:
                for tap in taps:
                    for_vectors(width, LANES, partial(clear, row, tap, 0))

        with task_loop(w.images, math.prod(w.shape)) as image, _rows(w, image) as row:
            either(row.is_inside, partial(whole, row), partial(beside, row))

    return build_kernel(
        (("data", (w.images, *w.image), w.dtype), ("columns", w.shape, w.dtype)), body
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of windows and of the image, for one tap along all axes except the last.

    - `taps`: the tap's number, counted along these axes.
    - `places`, `pixels`: the position of the row among windows, and in the image.
    - `tests`: conditions that the row is in the image.
    """

    image: Any
    taps: Any
    places: tuple[Any, ...]
    pixels: tuple[Any, ...]
    tests: tuple[Any, ...]

    @property
    def is_inside(self) -> Any:
        """The condition that the row is in the image; None if there is none."""
        return tirx.all(*self.tests) if self.tests else None

    def column(self, w: ColumnsWorkload, tap: Any, x: Any, lanes: int) -> tuple[Any, ...]:
        """Return the index of a tap along the last axis, for windows from ``x`` on."""
        return (self.image, self.taps * w.block[-1] + tap, *self.places, span(x, lanes))

    def pixel(self, w: ColumnsWorkload, tap: Any, x: Any, lanes: int) -> tuple[Any, ...]:
        """Return the index of the same pixels in the image."""
        first = x * w.strides[-1] + w.start(-1, tap)
        return (self.image, *self.pixels, span(first, lanes))


@contextmanager
def _rows(w: ColumnsWorkload, image: Any) -> Iterator[_Row]:
    """Emit the body for every row of windows and every tap, except along the last axis."""
    with ExitStack() as nest:
        taps = [nest.enter_context(T.serial(extent)) for extent in w.block[:-1]]
        places = [nest.enter_context(T.serial(extent)) for extent in w.places[:-1]]
        pixels = tuple(
            place * w.strides[axis] + w.start(axis, tap)
            for axis, (tap, place) in enumerate(zip(taps, places, strict=True))
        )
        tests = [
            test
            for y, extent in zip(pixels, w.image, strict=False)
            for test in (y >= 0, y < extent)
        ]
        number: Any = 0
        for tap, extent in zip(taps, w.block, strict=False):
            number = number * extent + tap
        yield _Row(image, number, tuple(places), pixels, tuple(tests))


@contextmanager
def _taps(w: ColumnsWorkload) -> Iterator[Iterable[Any]]:
    """Emit the body for the taps along the last axis, unrolled or in a loop."""
    if w.block[-1] <= MOST_WRITTEN:
        yield range(w.block[-1])
        return
    with T.serial(w.block[-1]) as tap:
        yield (tap,)


def _for_count(count: Any, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Emit code for ``count`` elements, in vectors if the number is known."""
    if isinstance(count, int):
        for_vectors(count, lanes, emit)
        return
    with T.serial(count) as x:
        emit(x, 1)
