"""ONNX's GridSample: images of any rank, interpolated at points from data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    flat,
    for_vectors,
    span,
    splat,
    strides_of,
    task_loop,
)
from neocpu.schedules.tir.vector_terms import to_even
from neocpu.schedules.vocabulary.layout import ceil_div

POINTS = 64
"""The number of points whose pixels and weights a task holds at a time."""
LANES = 16

_FAR = 1 << 28
"""A distance in pixels far beyond any image, and far below the limit of int32."""
_ALPHA = -0.75
"""The coefficient of Keys' kernel, as in PyTorch."""

_Weigh = Callable[[Any], Any]


def _cubic(shift: int) -> _Weigh:
    """Return the weight function of a pixel ``shift`` from the one before a point."""

    def weigh(t: Any) -> Any:
        kind, a = t.ty.dtype, _ALPHA
        x = t - tirx.const(shift, kind) if shift <= 0 else tirx.const(shift, kind) - t
        terms = (a + 2, -(a + 3), 0, 1) if shift in (0, 1) else (a, -5 * a, 8 * a, -4 * a)
        value: Any = tirx.const(terms[0], kind)
        for term in terms[1:]:
            value = value * x + tirx.const(term, kind)
        return value

    return weigh


_TAPS: Final[Mapping[str, Mapping[int, _Weigh]]] = {
    "nearest": {0: lambda t: tirx.const(1, t.ty.dtype)},
    "linear": {0: lambda t: tirx.const(1, t.ty.dtype) - t, 1: lambda t: t},
    "cubic": {shift: _cubic(shift) for shift in (-1, 0, 1, 2)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSampleWorkload:
    """The sampling of ``points`` points of each image.

    - `mode`: ``nearest``, ``linear`` or ``cubic``.
    - `padding`: the values beside an image: ``zeros``, ``border`` or ``reflection``.
    - `align_corners`: whether -1 and 1 are centres of the outermost pixels, not their borders.
    - `channels_last`: whether channels are the last axis of data and output, instead of the second.
    """

    images: int
    channels: int
    extents: tuple[int, ...]
    points: int
    mode: str
    padding: str
    align_corners: bool
    channels_last: bool
    dtype: str
    grid_dtype: str

    @property
    def kind(self) -> str:
        """The type in which values are computed."""
        kinds = (self.dtype, self.grid_dtype)
        exact = "float64" in kinds or (bytes_of(self.dtype) >= 4 and self.dtype[0] != "f")
        return "float64" if exact else "float32"

    @property
    def taps(self) -> tuple[tuple[int, ...], ...]:
        """The offsets along each axis of the pixels that contribute to a point."""
        return tuple(product(_TAPS[self.mode], repeat=len(self.extents)))

    @property
    def computes(self) -> str:
        """The parts of its computation that shapes do not show."""
        how = f"{self.mode} {self.padding} {self.align_corners} {self.channels_last}"
        return f"{how} {self.extents}"

    def shape(self, pixels: int) -> tuple[int, int, int]:
        """Return the shape of the data or the output, which has ``pixels`` pixels per image."""
        last = self.channels_last
        each = (pixels, self.channels) if last else (self.channels, pixels)
        return (self.images, *each)


def lower_grid_sample(workload: GridSampleWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, grid, output)``.

    ``data`` and ``output`` are ``(images, channels, pixels)`` or ``(images, pixels, channels)``,
    ``grid`` is ``(images, points, rank)``, the last axis of an image first, from -1 to 1. Of a
    coordinate that is no number -1 is taken, and nothing is farther than int32 reaches::

        parallel image · points · part of the channels     # the last points overlap others
          for vectors of points: offsets and weights of their pixels
          for channel: for point: sum of weight · pixel
          or for point: for vectors of channels: sum of weight · pixel
    """
    w = workload
    rank, pixels = len(w.extents), math.prod(w.extents)
    width = min(POINTS, w.points)
    blocks = ceil_div(w.points, width)
    parts = 1 if w.channels_last else min(w.channels, ceil_div(ENOUGH_TASKS, w.images * blocks))
    parameters = (
        ("data", w.shape(pixels), w.dtype),
        ("grid", (w.images, w.points, rank), w.grid_dtype),
        ("output", w.shape(w.points), w.dtype),
    )

    def body(data: Any, grid: Any, output: Any) -> None:
        tasks = w.images * blocks * parts
        with task_loop(tasks, math.prod(w.shape(w.points))) as task:
            image, part = task // (blocks * parts), task % parts
            start = T.Bind(T.min(task // parts % blocks * width, w.points - width))
            pixels = _Pixels(w, width)
            pixels.locate(flat(grid), image * w.points + start)
            if w.channels_last:
                with T.serial(width) as point:

                    def sums(c: Any, lanes: int) -> None:
                        value = pixels.total(
                            point, lambda at: data[image, at, span(c, lanes)], lanes
                        )
                        T.buffer_store(output, value, [image, start + point, span(c, lanes)])

                    for_vectors(w.channels, LANES, sums)
                return
            first, last = (tirx.floordiv((part + i) * w.channels, parts) for i in range(2))
            with T.serial(first, last) as c, T.serial(width) as point:
                value = pixels.total(point, lambda at: data[image, c, at], 1)
                T.buffer_store(output, value, [image, c, start + point])

    return build_kernel(parameters, body)


class _Pixels:
    """The pixels around some points: their places in the image, and their weights."""

    def __init__(self, workload: GridSampleWorkload, width: int) -> None:
        self._workload, self._taps, self._width = workload, workload.taps, width
        shape = (len(self._taps), width)
        self._offsets = T.alloc_buffer(shape, "int32", layout=None)
        self._weights = T.alloc_buffer(shape, workload.kind, layout=None)

    def locate(self, grid: Any, start: Any) -> None:
        """Emit the places for the points of a flat grid from ``start`` on."""
        w, rank = self._workload, len(self._workload.extents)

        def emit(i: Any, lanes: int) -> None:
            first = (start + i) * rank
            place = T.ramp(first, rank, lanes) if lanes > 1 else first
            axes = [_axis_taps(w, axis, grid[place + (rank - 1 - axis)]) for axis in range(rank)]
            for number, shifts in enumerate(self._taps):
                chosen = [axes[axis][shift] for axis, shift in enumerate(shifts)]
                offset, weight = _joined(chosen, w)
                T.buffer_store(self._offsets, offset, [number, span(i, lanes)])
                T.buffer_store(self._weights, weight, [number, span(i, lanes)])

        for_vectors(self._width, LANES, emit)

    def total(self, point: Any, read: Callable[[Any], Any], lanes: int) -> Any:
        """Return the weighted sum of a point's pixels, from ``read``, in the stored type."""
        w = self._workload
        terms = [self._weighted(k, point, read, lanes) for k in range(len(self._taps))]
        total = sum(terms[1:], terms[0])
        if w.dtype.startswith(("int", "uint")):  # towards zero; a cubic may exceed its pixels
            limits = np.iinfo(w.dtype)
            low, high = (
                splat(tirx.const(float(end), w.kind), lanes) for end in (limits.min, limits.max)
            )
            total = T.max(T.min(total, high), low)
            total = T.cast(total, _vector("int64" if bytes_of(w.dtype) >= 4 else "int32", lanes))
        return T.cast(total, _vector(w.dtype, lanes))

    def _weighted(self, number: int, point: Any, read: Callable[[Any], Any], lanes: int) -> Any:
        w, offset = self._workload, T.Bind(self._offsets[number, point])
        beside = w.padding == "zeros"
        value = T.cast(read(T.max(offset, 0) if beside else offset), _vector(w.kind, lanes))
        if beside:
            nothing = splat(tirx.const(0, w.kind), lanes)
            value = tirx.Select(splat(offset >= 0, lanes), value, nothing)
        return splat(self._weights[number, point], lanes) * value


@dataclass(frozen=True, slots=True)
class _Tap:
    """The place of a pixel along one axis, whether it is in the image, and its weight."""

    index: Any
    inside: Any
    weight: Any


def _vector(kind: str, lanes: int) -> str:
    return f"{kind}x{lanes}" if lanes > 1 else kind


def _axis_taps(w: GridSampleWorkload, axis: int, given: Any) -> dict[int, _Tap]:
    """Return the pixels along one axis around a coordinate, or around each of a vector."""
    extent, lanes = w.extents[axis], str(given.ty.dtype).partition("x")[2]
    kind, whole = _vector(w.kind, int(lanes or 1)), _vector("int32", int(lanes or 1))

    def number(value: float) -> Any:
        return tirx.const(value, kind)

    limit = max(2.0, _FAR / max(w.extents))
    value = T.Bind(T.cast(given, kind))
    # Both comparisons are false for NaN.
    is_number = T.bitwise_or(value >= number(-limit), value <= number(limit))
    near = T.max(T.min(value, number(limit)), number(-limit))
    value = tirx.Select(is_number, near, number(-1))
    if w.align_corners:
        at = (value + number(1)) / number(2) * number(extent - 1)
        borders = 0.0, extent - 1.0
    else:
        at = ((value + number(1)) * number(extent) - number(1)) / number(2)
        borders = -0.5, extent - 0.5
    if w.mode == "nearest":
        at = to_even(at)
    # Each tap of a cubic is moved into the image; for other modes, the position is.
    if w.padding == "border" and w.mode != "cubic":
        at = T.max(T.min(at, number(extent - 1)), number(0))
    elif w.padding == "reflection" and w.mode != "cubic":
        at = _reflected(T.Bind(at), borders)
    at = T.Bind(at)
    base = T.Bind(tirx.call_llvm_pure_intrin(kind, "llvm.floor", at))
    rest = T.Bind(at - base)
    taps = {}
    for shift, weigh in _TAPS[w.mode].items():
        position = T.Bind(base + number(shift))
        inside = T.bitwise_and(position >= number(0), position <= number(extent - 1))
        if w.padding == "reflection":
            position = _reflected(position, borders)
        nearest = T.max(T.min(position, number(extent - 1)), number(0))
        taps[shift] = _Tap(T.Bind(T.cast(nearest, whole)), inside, T.Bind(weigh(rest)))
    return taps


def _joined(taps: list[_Tap], w: GridSampleWorkload) -> tuple[Any, Any]:
    """Return the place of a pixel in its image, -1 for a zero beside it, and its weight."""
    offset: Any = 0
    inside, weight = taps[0].inside, taps[0].weight
    for tap, stride in zip(taps, strides_of(w.extents), strict=True):
        offset = offset + tap.index * stride
    for tap in taps[1:]:
        inside, weight = T.bitwise_and(inside, tap.inside), weight * tap.weight
    if w.padding == "zeros":
        offset = tirx.Select(inside, offset, tirx.const(-1, offset.ty.dtype))
    return offset, weight


def _reflected(at: Any, borders: tuple[float, float]) -> Any:
    """Reflect positions at the borders, as often as necessary."""
    kind, (low, high) = at.ty.dtype, borders
    whole = kind.replace("float32", "int32").replace("float64", "int32")
    size = int(high - low)
    start = tirx.const(low, kind)
    beyond = T.Bind(tirx.abs(at - start))
    times = T.Bind(tirx.truncdiv(T.cast(beyond, whole), tirx.const(max(size, 1), whole)))
    rest = T.Bind(beyond - T.cast(times * tirx.const(size, whole), kind))
    odd = T.bitwise_and(times, tirx.const(1, whole)) != tirx.const(0, whole)
    folded = tirx.Select(odd, tirx.const(size, kind) - rest, rest) + start
    inside = T.bitwise_and(at >= start, at <= tirx.const(high, kind))
    return T.Bind(tirx.Select(inside, at, folded))
