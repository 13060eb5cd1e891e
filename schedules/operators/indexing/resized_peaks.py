"""Maxima of maps that are resized to sizes from data, as for keypoints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import variable
from neocpu.schedules.tir.builder import PARALLEL_ELEMENTS, build_kernel, task_loop

LONGEST: Final = 1 << 13
"""The most pixels along a resized side: a run ends whatever the data."""

_TAPS: Final = 4
_LOWEST: Final = -3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class PeaksWorkload:
    """The peaks of ``(rows, maps, height, width)`` maps; `cubic` is ONNX's ``cubic_coeff_a``."""

    rows: int
    maps: int
    height: int
    width: int
    cubic: float = -0.75


def lower_resized_peaks(workload: PeaksWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, heights, widths, count, values, places)``.

    ``data`` is float32. ``heights`` and ``widths``, ``(rows,)`` int32 from 1 to `LONGEST`, are the
    sizes to which maps are resized: bicubic, by the centres of pixels, repeating the border.
    ``values``, ``(rows, maps)`` float32, has each map's maximum, and ``places``,
    ``(2, rows, maps)`` int64, the row and the column where it first occurs.
    Rows after ``count``, ``(1,)`` int64, are zeros::

        parallel row · map
          for y in height: line = four rows of data, weighted
            for x in width: value = four elements of the line, weighted; keep it if it is higher
    """
    rows, maps = workload.rows, workload.maps
    parameters = (
        ("data", (rows, maps, workload.height, workload.width), "float32"),
        ("heights", (rows,), "int32"),
        ("widths", (rows,), "int32"),
        ("count", (1,), "int64"),
        ("values", (rows, maps), "float32"),
        ("places", (2, rows, maps), "int64"),
    )

    def body(data: Any, heights: Any, widths: Any, count: Any, values: Any, places: Any) -> None:
        number = clipped(count, rows)
        with task_loop(rows * maps, PARALLEL_ELEMENTS) as task:
            row, map = task // maps, task % maps
            best, (top, left) = variable("float32", _float(0)), [variable("int32", 0) for _ in "yx"]
            with T.If(row < number), T.Then():
                T.buffer_store(best, _float(_LOWEST), [0])
                sides = T.Bind(heights[row]), T.Bind(widths[row])
                _emit_search(workload, (data, row, map), sides, (best, top, left))
            T.buffer_store(values, best[0], [row, map])
            for axis, place in enumerate((top, left)):
                T.buffer_store(places, T.cast(place[0], "int64"), [axis, row, map])

    return build_kernel(parameters, body)


def _emit_search(
    workload: PeaksWorkload,
    source: tuple[Any, Any, Any],
    sides: tuple[Any, Any],
    found: tuple[Any, Any, Any],
) -> None:
    """Search one resized map without storing it."""
    data, row, map = source
    best, top, left = found
    line = T.alloc_buffer((workload.width,), "float32", layout=None)
    with T.serial(sides[0]) as y:
        above, weights = _emit_taps(workload, y, sides[0], workload.height)
        with T.serial(workload.width) as x:
            terms = (w * data[row, map, a, x] for w, a in zip(weights, above, strict=True))
            total = reduce(add, terms)
            T.buffer_store(line, total, [x])
        with T.serial(sides[1]) as x:
            beside, weights = _emit_taps(workload, x, sides[1], workload.width)
            terms = (w * line[b] for w, b in zip(weights, beside, strict=True))
            value = T.Bind(reduce(add, terms))
            with T.If(value > best[0]), T.Then():
                T.buffer_store(best, value, [0])
                T.buffer_store(top, y, [0])
                T.buffer_store(left, x, [0])


def _emit_taps(
    workload: PeaksWorkload, place: Any, side: Any, extent: int
) -> tuple[list[Any], list[Any]]:
    """Return the pixels that contribute to a resized one, and their weights."""
    step = T.Bind(_float(extent) / T.cast(T.max(side, 1), "float32"))
    at = T.Bind((T.cast(place, "float32") + _float(0.5)) * step - _float(0.5))
    low = T.Bind(T.floor(at))
    after = T.Bind(at - low)
    first = T.Bind(T.cast(low, "int32") - 1)
    pixels = [T.Bind(T.max(T.min(first + i, extent - 1), 0)) for i in range(_TAPS)]
    before = T.Bind(_float(1) - after)
    weights = [_far(workload.cubic, after), _near(workload.cubic, after)]
    weights += [_near(workload.cubic, before), _far(workload.cubic, before)]
    return pixels, [T.Bind(weight) for weight in weights]


def _near(cubic: float, distance: Any) -> Any:
    """Return the weight of a pixel that is less than one pixel away."""
    sloped = _float(cubic + 2) * distance - _float(cubic + 3)
    return sloped * distance * distance + _float(1)


def _far(cubic: float, distance: Any) -> Any:
    """Return the weight of a pixel that is between one and two pixels away: one more than given."""
    away = distance + _float(1)
    squared = (_float(cubic) * away - _float(5 * cubic)) * away + _float(8 * cubic)
    return squared * away - _float(4 * cubic)


def _float(value: float) -> Any:
    return tirx.const(value, "float32")
