"""ONNX's RoiAlign: regions of feature maps, in bins of bilinear samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import add, variable
from neocpu.schedules.tir.builder import build_kernel, task_loop

Extents = tuple[int, int]


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

    @property
    def output(self) -> tuple[int, ...]:
        """The output's shape."""
        return (self.regions, self.data[1], *self.bins)


def lower_roi_align(workload: RoiAlignWorkload) -> Any:
    """Scheduled ``PrimFunc(data, corners, images, [count,] output)``, float32 but int32 images.

    Corners ``(x1, y1, x2, y2)`` are finite and images exist: what else data holds is cleaned
    before. A region without extent, and samples outside the image, are zeros, as are all regions
    after ``count``, ``(1,)`` int64.

    ::

        parallel region · channel
          for bin: for row of samples: for sample: sum += interpolated pixel, or the larger
    """
    parameters = (
        ("data", workload.data, "float32"),
        ("corners", (workload.regions, 4), "float32"),
        ("images", (workload.regions,), "int32"),
        *([("count", (1,), "int64")] if workload.counted else []),
        ("output", workload.output, "float32"),
    )

    def body(data: Any, corners: Any, images: Any, *others: Any) -> None:
        *count, output = others
        regions, channels, height, width = workload.output
        number = clipped(count[0], regions) if count else None
        with task_loop(regions * channels, regions * channels * height * width) as task:
            region, channel = task // channels, task % channels
            if number is None:
                _emit_region(workload, (data, corners, images), (region, channel), output)
            else:
                with T.If(region < number):
                    with T.Then():
                        _emit_region(workload, (data, corners, images), (region, channel), output)
                    with T.Else():
                        with T.serial(height) as y, T.serial(width) as x:
                            T.buffer_store(output, _float(0.0), [region, channel, y, x])

    return build_kernel(parameters, body)


def _emit_region(
    workload: RoiAlignWorkload, inputs: tuple[Any, Any, Any], place: tuple[Any, Any], output: Any
) -> None:
    """Write the bins of one channel of one region."""
    data, corners, images = inputs
    region, channel = place
    plane = T.Bind(images[region]), channel
    rows, columns = (_emit_grid(workload, corners, region, axis) for axis in (0, 1))
    with T.serial(workload.bins[0]) as y, T.serial(workload.bins[1]) as x:
        total = variable("float32", _float(0.0))
        with T.serial(rows.samples) as i:
            row = _emit_sample(rows, y, i, workload.data[2])
            with T.serial(columns.samples) as j:
                column = _emit_sample(columns, x, j, workload.data[3])
                if workload.largest:
                    pixel = T.Bind(_largest(data, plane, row, column))
                    is_first = tirx.all(i == 0, j == 0)
                    larger = tirx.Select(total[0] > pixel, total[0], pixel)
                    T.buffer_store(total, tirx.Select(is_first, pixel, larger), [0])
                else:
                    add(total, _interpolated(data, plane, row, column))
        count = 1 if workload.largest else T.max(rows.samples * columns.samples, 1)
        T.buffer_store(output, total[0] / T.cast(count, "float32"), [region, channel, y, x])


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
    return _Sample(inside, low, T.min(low + 1, extent - 1), clipped - T.cast(low, "float32"))


def _interpolated(data: Any, plane: tuple[Any, Any], row: _Sample, column: _Sample) -> Any:
    def along(y: Any) -> Any:
        left, right = data[(*plane, y, column.low)], data[(*plane, y, column.high)]
        return left * (_float(1.0) - column.weight) + right * column.weight

    value = along(row.low) * (_float(1.0) - row.weight) + along(row.high) * row.weight
    return tirx.Select(tirx.all(row.inside, column.inside), value, _float(0.0))


def _largest(data: Any, plane: tuple[Any, Any], row: _Sample, column: _Sample) -> Any:
    """Return the largest of four pixels, each times its weight."""
    weighted = [
        data[(*plane, y, x)] * (down * across)
        for y, down in ((row.low, _float(1.0) - row.weight), (row.high, row.weight))
        for x, across in ((column.low, _float(1.0) - column.weight), (column.high, column.weight))
    ]
    value = T.max(T.max(weighted[0], weighted[1]), T.max(weighted[2], weighted[3]))
    return tirx.Select(tirx.all(row.inside, column.inside), value, _float(0.0))
