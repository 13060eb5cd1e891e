"""Resizing of feature maps in NCHW and NCHW[x]c: each pixel is a weighted sum of neighbours, along
each axis in turn, by two tables of neighbours and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.tir.bfloat16 import bits_of
from neocpu.schedules.tir.builder import (
    build_kernel,
    for_vectors,
    loop_nest,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import NCHW, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import for_any_size, larger, varies

Shape4 = tuple[int, int, int, int]

#: The number of neighbours that contribute to a pixel along each axis, by method.
TAPS: Final = {"nearest_neighbor": 1, "linear": 2, "cubic": 4}
COORDINATES: Final = ("asymmetric", "half_pixel", "align_corners")
# The cost of a pixel in NCHW, which is loaded alone from a place in a table; measured on a Zen 5.
_CYCLES_PER_PIXEL: Final = 2.0


@dataclass(frozen=True, slots=True)
class ResizeWorkload:
    """A resizing of height and width.

    - `method`: a key of `TAPS`; with ``asymmetric`` coordinates, ``nearest_neighbor`` rounds down.
    - `coordinates`: the mapping of output points to input points: one of `COORDINATES`.
    - `cubic`: the coefficient of the cubic kernel.
    """

    shape: Shape4
    size: tuple[int, int]
    method: str
    coordinates: str
    cubic: float = -0.75

    @property
    def taps(self) -> int:
        """The number of neighbours that contribute to a pixel along each axis."""
        return TAPS[self.method]

    @property
    def output_shape(self) -> Shape4:
        """The NCHW shape of the output."""
        return (*self.shape[:2], *self.size)

    def tables(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return rows, then columns, to sum, and their weights, both ``(height + width, taps)``."""
        axes = [
            _table(extent, output, self)
            for extent, output in zip(self.shape[2:], self.size, strict=True)
        ]
        places, weights = (np.concatenate(both) for both in zip(*axes, strict=True))
        return places.astype(np.int32), weights.astype(np.float32)


def _table(
    extent: int, output: int, workload: ResizeWorkload
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    at = np.arange(output)
    if workload.taps == 1:
        return (at * extent // output)[:, None], np.ones((output, 1))
    x = {
        "asymmetric": at * (extent / output),
        "half_pixel": (at + 0.5) * (extent / output) - 0.5,
        "align_corners": at * ((extent - 1) / max(output - 1, 1)),
    }[workload.coordinates]
    reach = workload.taps // 2
    places = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(places - x[:, None])
    if workload.taps == 2:
        weights = 1 - distance
    else:
        a = workload.cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        weights = np.where(distance <= 1, near, far)
    return np.clip(places, 0, extent - 1), weights


def estimate(workload: ResizeWorkload, form: Format, target: CpuTarget, threads: int) -> float:
    """Return analytic seconds: those of the bytes, or in NCHW of the pixels one by one."""
    size = form.bytes(workload.shape) + form.bytes(workload.output_shape)
    seconds = stream_seconds(size, target, threads)
    if form.layout == NCHW:
        cycles = math.prod(workload.output_shape) * workload.taps * _CYCLES_PER_PIXEL
        seconds = max(seconds, cycles / target.frequency / threads)
    return fork_seconds(threads, target) + seconds


def lower_resize(workload: ResizeWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, places, weights, output)``; see `tables`.

    A kernel for any size computes the tables itself, and does not take them.
    """
    table = (sum(workload.size), workload.taps)
    given = [("places", table, "int32"), ("weights", table, "float32")]
    parameters = [
        ("data", form.shape(workload.shape), form.dtype),
        *([] if for_any_size() else given),
        ("output", form.shape(workload.output_shape), form.dtype),
    ]

    def body(data: Any, *others: Any) -> None:
        *tables, output = others
        data, output = bits_of(data), bits_of(output)
        sums = _Sums(workload.taps, *(tables or _emit_tables(workload)))
        if form.layout == NCHW:
            _emit_rows(workload, sums, data, output, target.lanes(form.dtype))
        else:
            _emit_blocks(workload, sums, data, output, target.lanes(form.dtype))

    return build_kernel(parameters, body)


@dataclass(frozen=True, slots=True)
class _Sums:
    """An emitter of the sums of an output's row or column, by the tables."""

    taps: int
    places: Any
    weights: Any

    def places_of(self, line: Any) -> list[Any]:
        """Return the neighbours to sum."""
        return [T.Bind(self.places[line, tap]) for tap in range(self.taps)]

    def weights_of(self, line: Any) -> list[Any]:
        """Return the weights; empty if a single neighbour is copied."""
        return [T.Bind(self.weights[line, tap]) for tap in range(self.taps) if self.taps > 1]

    def sum(self, weights: list[Any], read: Callable[[int], Any], width: int) -> Any:
        """Return the weighted sum of vectors; ``read(tap)`` returns that of a neighbour."""
        if not weights:
            return read(0)
        total = read(0) * splat(weights[0], width)
        for tap, weight in enumerate(weights[1:], 1):
            total = total + read(tap) * splat(weight, width)
        return total


def _emit_tables(workload: ResizeWorkload) -> tuple[Any, Any]:
    """Emit the computation of the tables, as `_table` has it."""
    shape = (sum(workload.size), workload.taps)
    places, weights = (T.alloc_buffer(shape, kind, layout=None) for kind in ("int32", "float32"))
    first = 0
    for extent, output in zip(workload.shape[2:], workload.size, strict=True):
        with T.serial(output) as at:
            if workload.taps == 1:
                T.buffer_store(places, tirx.floordiv(at * extent, output), [first + at, 0])
            else:
                _emit_table(workload, (extent, output), at, (places, weights), first + at)
        first = first + output
    return places, weights


def _emit_table(
    workload: ResizeWorkload, extents: tuple[int, int], at: Any, tables: tuple[Any, Any], row: Any
) -> None:
    extent, output = extents

    def ratio(above: int, below: int) -> Any:
        """Return a quotient that TVM does not compute: at other sizes it is another."""
        both = (
            tirx.Cast("float64", tirx.const(each)) if varies(each) else number(each)
            for each in (above, below)
        )
        return tirx.Div(*both)

    def number(value: float) -> Any:
        return tirx.const(value, "float64")

    point = T.cast(at, "float64")
    if workload.coordinates == "half_pixel":
        x = (point + number(0.5)) * ratio(extent, output) - number(0.5)
    elif workload.coordinates == "align_corners":
        x = point * ratio(extent - 1, larger(output - 1, 1))
    else:
        x = point * ratio(extent, output)
    # In memory: TVM takes bound values for integers, of which it looks for the range.
    kept = T.alloc_buffer((2,), "float64", scope="local", layout=None)
    T.buffer_store(kept, x, [0])
    x, reach = kept[0], workload.taps // 2
    before = T.Bind(T.cast(T.floor(x), "int32") + (1 - reach))
    for tap in range(workload.taps):
        place = T.Bind(before + tap)
        T.buffer_store(kept, T.abs(T.cast(place, "float64") - x), [1])
        distance = kept[1]
        if workload.taps == 2:
            weight = number(1) - distance
        else:
            a, one = workload.cubic, distance * distance
            near = (number(a + 2) * distance - number(a + 3)) * one + number(1)
            far = ((distance - number(5)) * distance + number(8)) * distance * number(a)
            weight = T.Select(distance <= number(1), near, far - number(4 * a))
        T.buffer_store(tables[0], T.max(T.min(place, extent - 1), 0), [row, tap])
        T.buffer_store(tables[1], T.cast(weight, "float32"), [row, tap])


def _emit_blocks(workload: ResizeWorkload, sums: _Sums, data: Any, output: Any, lanes: int) -> None:
    """Emit the loop nest in NCHW[x]c::

    parallel n · chunk · row: for pixel: vectors of x: the sum of rows of sums of columns
    """
    n, (height, width) = workload.shape[0], workload.size
    chunks, block = int(output.shape[1]), int(output.shape[4])
    elements = n * chunks * height * width * block
    with loop_nest((n, chunks, height), elements) as (image, chunk, y):
        rows, down = sums.places_of(y), sums.weights_of(y)
        with T.serial(width) as x:
            columns, across = sums.places_of(height + x), sums.weights_of(height + x)

            def copy(lane: Any, count: int) -> None:
                def pixel(row: Any, column: Any) -> Any:
                    return data[image, chunk, row, column, span(lane, count)]

                def line(tap: int) -> Any:
                    row = rows[tap]
                    return sums.sum(across, lambda other: pixel(row, columns[other]), count)

                value = sums.sum(down, line, count)
                T.buffer_store(output, value, [image, chunk, y, x, span(lane, count)])

            for_vectors(block, lanes, copy)


def _emit_rows(workload: ResizeWorkload, sums: _Sums, data: Any, output: Any, lanes: int) -> None:
    """Emit the loop nest in NCHW::

    parallel n · c · row
      line[w] = the sum of rows                 vectors along w
      for pixel: the sum of columns of line
    """
    n, channels, height, width = workload.output_shape
    before = workload.shape[3]
    elements = math.prod(workload.output_shape)
    with task_loop(n * channels, elements) as task, T.serial(height) as y:
        image, channel = task // channels, task % channels
        line = T.alloc_buffer((before,), str(data.dtype), layout=None)
        rows, down = sums.places_of(y), sums.weights_of(y)

        def add_up(at: Any, count: int) -> None:
            def read(tap: int) -> Any:
                return data[image, channel, rows[tap], span(at, count)]

            T.buffer_store(line, sums.sum(down, read, count), [span(at, count)])

        for_vectors(before, lanes, add_up)
        with T.serial(width) as x:
            columns, across = sums.places_of(height + x), sums.weights_of(height + x)
            value = sums.sum(across, lambda tap: line[columns[tap]], 1)
            T.buffer_store(output, value, [image, channel, y, x])
