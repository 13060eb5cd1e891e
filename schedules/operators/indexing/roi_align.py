"""ONNX's RoiAlign: regions of feature maps, in bins of bilinear samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.either import either
from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    flat,
    for_vectors,
    span,
    splat,
    task_loop,
    transpose,
)
from neocpu.schedules.vocabulary.layout import ceil_div

Extents = tuple[int, int]

LANES: Final = 16
"""The number of channels that are computed together, where they are adjacent."""
EDGE: Final = 8
"""The number of bins, and of channels, that are transposed in registers."""
SUMS: Final = 8192
"""The approximate number of sums of a task: they stay in L1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoiAlignWorkload:
    """A RoiAlign of ``regions`` regions.

    - `data`: NCHW shape.
    - `bins`: the height and width of the output.
    - `samples`: the number of samples of a bin in each dimension; 0 for one per pixel.
    - `scale`, `offset`: the mapping of corners to pixels, ``scale * corner - offset``.
    - `least`: the smallest height and width of a region, in pixels.
    - `counted`: whether a number of regions is given, and no others count.
    - `largest`: whether a bin is the largest weighted pixel of its samples, not their mean.
    - `channels_last`: whether the kernel takes data as NHWC.
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
        """The shape of the output."""
        return (self.regions, self.data[1], *self.bins)

    @property
    def given(self) -> tuple[int, ...]:
        """The shape of the data as the kernel takes it."""
        images, channels, *extents = self.data
        return (images, *extents, channels) if self.channels_last else self.data


def lower_roi_align(workload: RoiAlignWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, corners, images, [count,] output)``.

    Corners ``(x1, y1, x2, y2)`` are finite and images exist: what else data holds is cleaned
    before. A region without extent, and samples outside the image, are zeros, as are all regions
    after ``count``, ``(1,)`` int64::

        parallel region · part of the channels
          for bin: for row of samples: for sample:
            for vectors of channels: sum[bin] += interpolated pixel, or the larger
          write the sums, transposed
    """
    channels, bins = workload.data[1], math.prod(workload.bins)
    parts = max(ceil_div(ENOUGH_TASKS, workload.regions), ceil_div(channels * bins, SUMS))
    parts = min(ceil_div(channels, LANES), parts)
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
            # The last channels may be computed twice, with the same result.
            width = min(channels, ceil_div(channels, parts * LANES) * LANES)
            first = T.Bind(T.min(task % parts * width, channels - width))
            share = _Share(workload, region, first, width)

            def clear() -> None:
                begin = T.Bind((region * channels + first) * bins)

                def store(i: Any, lanes: int) -> None:
                    nothing = splat(_float(0.0), lanes)
                    T.buffer_store(flat(output), nothing, [span(begin + i, lanes)])

                for_vectors(width * bins, LANES, store)

            counts = None if number is None else region < number
            either(counts, lambda: _emit_region(share, (data, corners, images), output), clear)

    return build_kernel(parameters, body)


@dataclass(frozen=True, slots=True)
class _Share:
    """Channels of a region from ``first`` on, for one task."""

    workload: RoiAlignWorkload
    region: Any
    first: Any
    width: int

    @property
    def lanes(self) -> int:
        """The number of adjacent channels."""
        return LANES if self.workload.channels_last else 1

    def pixel(self, data: Any, place: tuple[Any, Any, Any], channel: Any, lanes: int) -> Any:
        """Return ``lanes`` channels of the pixel at ``place``: an image, a row and a column."""
        image, *pixel = place
        here = span(self.first + channel, lanes)
        return data[(image, *pixel, here) if self.workload.channels_last else (image, here, *pixel)]


def _emit_region(share: _Share, inputs: tuple[Any, Any, Any], output: Any) -> None:
    workload = share.workload
    data, corners, images = inputs
    image = T.Bind(images[share.region])
    rows, columns = (_emit_grid(workload, corners, share.region, axis) for axis in (0, 1))
    bins = math.prod(workload.bins)
    totals = T.alloc_buffer((bins * share.width,), "float32", layout=None)
    combined = _largest if workload.largest else _interpolated

    def pixel(row: _Sample, column: _Sample, channel: Any, lanes: int) -> Any:
        def read(y: Any, x: Any) -> Any:
            return share.pixel(data, (image, y, x), channel, lanes)

        value = combined(read, row, column, lanes)
        inside = tirx.all(row.inside, column.inside)
        return tirx.Select(splat(inside, lanes), value, splat(_float(0.0), lanes))

    with T.serial(workload.bins[0]) as y, T.serial(workload.bins[1]) as x:
        begin = T.Bind((y * workload.bins[1] + x) * share.width)

        def clear(channel: Any, lanes: int) -> None:
            T.buffer_store(totals, splat(_float(0.0), lanes), [span(begin + channel, lanes)])

        for_vectors(share.width, share.lanes, clear)
        with T.serial(rows.samples) as i:
            row = _emit_sample(rows, y, i, workload.data[2])
            with T.serial(columns.samples) as j:
                column = _emit_sample(columns, x, j, workload.data[3])

                def join(channel: Any, lanes: int) -> None:
                    here = span(begin + channel, lanes)
                    value, total = pixel(row, column, channel, lanes), totals[here]
                    if workload.largest:
                        value = T.Bind(value)
                        is_first = splat(tirx.all(i == 0, j == 0), lanes)
                        larger = tirx.Select(total > value, total, value)
                        T.buffer_store(totals, tirx.Select(is_first, value, larger), [here])
                    else:
                        T.buffer_store(totals, total + value, [here])

                for_vectors(share.width, share.lanes, join)
    count = 1 if workload.largest else T.max(rows.samples * columns.samples, 1)
    _write_transposed(share, totals, T.Bind(T.cast(count, "float32")), output)


def _write_transposed(share: _Share, totals: Any, divisor: Any, output: Any) -> None:
    """Write bins of channels as channels of bins, each divided."""
    bins, width = math.prod(share.workload.bins), share.width
    written = flat(output)
    begin = T.Bind((share.region * share.workload.data[1] + share.first) * bins)
    edge = min(EDGE, 1 << (min(bins, width).bit_length() - 1))
    with T.serial(ceil_div(width, edge)) as column, T.serial(ceil_div(bins, edge)) as step:
        channel = T.Bind(T.min(column * edge, width - edge))
        place = T.Bind(T.min(step * edge, bins - edge))
        rows = [
            T.Bind(totals[span((place + k) * width + channel, edge)] / splat(divisor, edge))
            for k in range(edge)
        ]
        for k, row in enumerate(transpose(rows) if edge > 1 else rows):
            T.buffer_store(written, row, [span(begin + (channel + k) * bins + place, edge)])


@dataclass(frozen=True, slots=True)
class _Grid:
    """The samples of a region in one dimension: its start, and the span of a bin."""

    start: Any
    step: Any
    samples: Any


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample in one dimension: whether it is inside, its two pixels, the second one's weight."""

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
    # A region that ends before it starts has none.
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
