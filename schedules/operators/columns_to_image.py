"""ONNX's Col2Im: elements of columns are added up where their windows lie in an image."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop

LANES = 16
MOST_WRITTEN = 8
"""Taps of a row that are written out, each with bounds that are known."""


@dataclass(frozen=True, slots=True)
class ColumnsWorkload:
    """Columns of windows of ``images`` images of one channel.

    Attributes
    ----------
    image, block : tuple of int
        Extents of an image and of a window.
    strides, dilations, pads : tuple of int
        Along each axis; pads are those in front.
    places : tuple of int
        Windows along each axis.
    """

    images: int
    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    places: tuple[int, ...]
    dtype: str

    def start(self, axis: int, tap: Any) -> Any:
        """Return where the first window has a tap; below zero it lies in front of the image."""
        return tap * self.dilations[axis] - self.pads[axis]


def lower_columns_to_image(workload: ColumnsWorkload) -> Any:
    """Scheduled ``PrimFunc(columns, output)``.

    ``columns`` is ``(images, taps, *places)``, ``output`` ``(images, *image)``.

    ::

        parallel image
          output[image] = 0
          for tap: for row of windows, if it is in the image:
            for vectors of the row: output[...] += columns[...]
    """
    w = workload
    size = math.prod(w.image)
    parameters = (
        ("columns", (w.images, math.prod(w.block), *w.places), w.dtype),
        ("output", (w.images, *w.image), w.dtype),
    )

    def body(columns: Any, output: Any) -> None:
        cleared = flat(output)
        with task_loop(w.images, w.images * size) as image:

            def clear(i: Any, lanes: int) -> None:
                zeros = splat(tirx.const(0, w.dtype), lanes)
                T.buffer_store(cleared, zeros, [span(image * size + i, lanes)])

            for_vectors(size, LANES, clear)
            with ExitStack() as nest:
                taps = [nest.enter_context(T.serial(extent)) for extent in w.block[:-1]]
                places = [nest.enter_context(T.serial(extent)) for extent in w.places[:-1]]
                row = [
                    place * stride + w.start(axis, tap)
                    for axis, (tap, place, stride) in enumerate(
                        zip(taps, places, w.strides, strict=False)
                    )
                ]
                tests = [(y >= 0, y < extent) for y, extent in zip(row, w.image, strict=False)]
                if tests:
                    nest.enter_context(T.If(tirx.all(*(test for pair in tests for test in pair))))
                    nest.enter_context(T.Then())
                number: Any = 0
                for tap, extent in zip(taps, w.block, strict=False):
                    number = number * extent + tap
                _emit_taps(w, (columns, output), (image, number, places), (image, *row))

    return build_kernel(parameters, body)


def _emit_taps(
    w: ColumnsWorkload,
    buffers: tuple[Any, Any],
    source: tuple[Any, Any, list[Any]],
    line: tuple[Any, ...],
) -> None:
    """Add the elements of a row of windows, for each tap along it, to a row of the image."""
    (columns, output), (image, taps, places) = buffers, source
    stride, width = w.strides[-1], w.block[-1]

    def add(tap: Any, first: Any, x: Any, lanes: int) -> None:
        start = w.start(-1, tap)
        there = span(first + x + start, lanes) if lanes > 1 else (first + x) * stride + start
        value = columns[(image, taps * width + tap, *places, span(first + x, lanes))]
        T.buffer_store(output, output[(*line, there)] + value, [*line, there])

    def bounds(tap: Any, most: Any, least: Any) -> tuple[Any, Any]:
        """Return the first window whose tap is in the row, and how many there are."""
        start = w.start(-1, tap)
        first = most(-(start // stride), 0)
        return first, most(least((w.image[-1] - 1 - start) // stride + 1, w.places[-1]) - first, 0)

    if width > MOST_WRITTEN:
        with T.serial(width) as tap:
            first, count = bounds(tap, T.max, T.min)
            with T.serial(count) as x:
                add(tap, first, x, 1)
        return
    for tap in range(width):
        first, count = bounds(tap, max, min)
        for_vectors(count, LANES if stride == 1 else 1, partial(add, tap, first))
