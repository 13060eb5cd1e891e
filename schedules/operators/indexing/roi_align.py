"""ONNX's RoiAlign: regions of feature maps, in bins of bilinear samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    for_vectors,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import ceil_div

Extents = tuple[int, int]

LANES: Final = 16
"""Channels that are computed together, where they lie together."""


@dataclass(frozen=True, slots=True)
class RoiAlignWorkload:
    """A RoiAlign of ``regions`` regions.

    Attributes
    ----------
    data : tuple of int
        NCHW shape.
    bins : tuple of int
        Height and width of the output.
    samples : int
        Samples of a bin in each dimension; 0 for as many as it has pixels.
    scale, offset : float
        A corner is at ``scale * corner - offset`` pixels.
    least : float
        Smallest height and width of a region, in pixels.
    counted : bool
        Whether only the first so many regions count; the kernel is told how many.
    largest : bool
        Whether a bin is the largest of what its samples' pixels are, each with its weight, and not
        the mean of the samples.
    channels_last : bool
        Whether the kernel takes data as NHWC, and writes bins before channels.
    """

    data: tuple[int, ...]
    regions: int
    bins: Extents
    samples: int
    scale: float
    offset: float
    least: float | None
    counted: bool = False
    largest: bool = False
    channels_last: bool = False

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of what the kernel writes."""
        return self._ordered(self.regions, self.bins)

    @property
    def given(self) -> tuple[int, ...]:
        """The shape of the data that the kernel takes."""
        return self._ordered(self.data[0], (self.data[2], self.data[3]))

    def _ordered(self, count: int, extents: Extents) -> tuple[int, ...]:
        channels = self.data[1]
        return (count, *extents, channels) if self.channels_last else (count, channels, *extents)


def lower_roi_align(workload: RoiAlignWorkload) -> Any:
    """Scheduled ``PrimFunc(data, corners, images, [count,] output)``, float32 but int32 images.

    Corners ``(x1, y1, x2, y2)`` are finite and images exist: what else data holds is cleaned
    before. A region without extent, and samples outside the image, are zeros, as are all regions
    after ``count``, ``(1,)`` int64.

    ::

        parallel region · part of the channels
          for bin: for row of samples: for sample:
            for vectors of channels: sum += interpolated pixel, or the larger
    """
    channels = workload.data[1]
    parts = min(ceil_div(channels, LANES), ceil_div(ENOUGH_TASKS, workload.regions))
    parameters = (
        ("data", workload.given, "float32"),
        ("corners", (workload.regions, 4), "float32"),
        ("images", (workload.regions,), "int32"),
        *([("count", (1,), "int64")] if workload.counted else []),
        ("output", workload.output, "float32"),
    )

    def body(data: Any, corners: Any, images: Any, *others: Any) -> None:
        *count, output = others
        number = clipped(count[0], workload.regions) if count else None
        with task_loop(workload.regions * parts, math.prod(workload.output)) as task:
            region = task // parts
            # The last ones may be done twice, alike.
            width = min(channels, ceil_div(channels, parts * LANES) * LANES)
            first = T.Bind(T.min(task % parts * width, channels - width))
            share = _Share(workload, region, first, width)
            if number is None:
                _emit_region(share, (data, corners, images), output)
            else:
                with T.If(region < number):
                    with T.Then():
                        _emit_region(share, (data, corners, images), output)
                    with T.Else(), T.serial(workload.bins[0]) as y, T.serial(workload.bins[1]) as x:
                        share.store(output, (y, x), lambda _, lanes: splat(_float(0.0), lanes))

    return build_kernel(parameters, body)


@dataclass(frozen=True, slots=True)
class _Share:
    """Some channels of a region, from ``first`` on."""

    workload: RoiAlignWorkload
    region: Any
    first: Any
    width: int

    @property
    def lanes(self) -> int:
        """Channels that lie together."""
        return LANES if self.workload.channels_last else 1

    def at(self, number: Any, place: tuple[Any, Any], channel: Any, lanes: int) -> tuple[Any, ...]:
        """Return where channels of a pixel lie, of an image or a region."""
        here = span(self.first + channel, lanes)
        return (number, *place, here) if self.workload.channels_last else (number, here, *place)

    def store(self, output: Any, place: tuple[Any, Any], value: Callable[[Any, int], Any]) -> None:
        """Emit the stores of a bin."""

        def emit(channel: Any, lanes: int) -> None:
            at = self.at(self.region, place, channel, lanes)
            T.buffer_store(output, value(channel, lanes), list(at))

        for_vectors(self.width, self.lanes, emit)


def _emit_region(share: _Share, inputs: tuple[Any, Any, Any], output: Any) -> None:
    """Write the bins of a region."""
    workload = share.workload
    data, corners, images = inputs
    image = T.Bind(images[share.region])
    rows, columns = (_emit_grid(workload, corners, share.region, axis) for axis in (0, 1))
    totals = T.alloc_buffer((share.width,), "float32", layout=None)
    combined = _largest if workload.largest else _interpolated

    def pixel(row: _Sample, column: _Sample, channel: Any, lanes: int) -> Any:
        def read(y: Any, x: Any) -> Any:
            return data[share.at(image, (y, x), channel, lanes)]

        value = combined(read, row, column, lanes)
        inside = tirx.all(row.inside, column.inside)
        return tirx.Select(splat(inside, lanes), value, splat(_float(0.0), lanes))

    with T.serial(workload.bins[0]) as y, T.serial(workload.bins[1]) as x:

        def begin(channel: Any, lanes: int) -> None:
            T.buffer_store(totals, splat(_float(0.0), lanes), [span(channel, lanes)])

        for_vectors(share.width, share.lanes, begin)
        with T.serial(rows.samples) as i:
            row = _emit_sample(rows, y, i, workload.data[2])
            with T.serial(columns.samples) as j:
                column = _emit_sample(columns, x, j, workload.data[3])

                def join(channel: Any, lanes: int) -> None:
                    here = span(channel, lanes)
                    value, total = pixel(row, column, channel, lanes), totals[here]
                    if workload.largest:
                        value = T.Bind(value)
                        is_kept = tirx.all(tirx.any(i > 0, j > 0), total > value)
                        T.buffer_store(totals, tirx.Select(is_kept, total, value), [here])
                    else:
                        T.buffer_store(totals, total + value, [here])

                for_vectors(share.width, share.lanes, join)
        count = 1 if workload.largest else T.max(rows.samples * columns.samples, 1)
        divisor = T.Bind(T.cast(count, "float32"))
        share.store(output, (y, x), lambda c, lanes: totals[span(c, lanes)] / splat(divisor, lanes))


@dataclass(frozen=True, slots=True)
class _Grid:
    """The samples of a region in one dimension: where it starts, and what a bin spans."""

    start: Any
    step: Any
    samples: Any


@dataclass(frozen=True, slots=True)
class _Sample:
    """A place in one dimension: whether it is in the image, its two pixels, the second's weight."""

    inside: Any
    low: Any
    high: Any
    weight: Any


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


def _emit_grid(workload: RoiAlignWorkload, corners: Any, region: Any, axis: int) -> _Grid:
    start, end = (
        T.Bind(corners[region, corner] * _float(workload.scale) - _float(workload.offset))
        for corner in (1 - axis, 3 - axis)
    )
    extent = end - start
    if workload.least is not None:
        extent = T.max(extent, _float(workload.least))
    step = T.Bind(extent / _float(workload.bins[axis]))
    if workload.samples:
        return _Grid(start, step, workload.samples)
    # None of a region that ends before it starts.
    return _Grid(start, step, T.Bind(T.max(T.cast(T.ceil(step), "int32"), 0)))


def _emit_sample(grid: _Grid, place: Any, number: Any, extent: int) -> _Sample:
    share = (T.cast(number, "float32") + _float(0.5)) / T.cast(grid.samples, "float32")
    at = T.Bind(grid.start + (T.cast(place, "float32") + share) * grid.step)
    inside = T.Bind(tirx.all(at >= _float(-1.0), at <= _float(extent)))
    clipped = T.Bind(T.max(T.min(at, _float(extent - 1)), _float(0.0)))
    low = T.Bind(T.cast(clipped, "int32"))
    high = T.Bind(T.min(low + 1, extent - 1))
    return _Sample(inside, low, high, T.Bind(clipped - T.cast(low, "float32")))


def _interpolated(
    read: Callable[[Any, Any], Any], row: _Sample, column: _Sample, lanes: int
) -> Any:
    def between(low: Any, high: Any, weight: Any) -> Any:
        rest = splat(_float(1.0) - weight, lanes)
        return low * rest + high * splat(weight, lanes)

    upper, lower = (
        between(read(y, column.low), read(y, column.high), column.weight)
        for y in (row.low, row.high)
    )
    return between(upper, lower, row.weight)


def _largest(read: Callable[[Any, Any], Any], row: _Sample, column: _Sample, lanes: int) -> Any:
    """Return the largest of four pixels, each times its weight."""
    weighted = [
        read(y, x) * splat(down * across, lanes)
        for y, down in ((row.low, _float(1.0) - row.weight), (row.high, row.weight))
        for x, across in ((column.low, _float(1.0) - column.weight), (column.high, column.weight))
    ]
    return T.max(T.max(weighted[0], weighted[1]), T.max(weighted[2], weighted[3]))
