"""Stream compaction: the places of selected elements, in order, and their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.radix_sort import add, variable
from neocpu.schedules.tir.builder import build_kernel, digits


def clipped(count: Any, most: int) -> Any:
    """Return a count from a buffer of one int64 as int32, between 0 and ``most``."""
    bound = T.max(T.min(count[0], tirx.const(most, "int64")), tirx.const(0, "int64"))
    return T.Bind(T.cast(bound, "int32"))


def lower_compact(shape: Sequence[int]) -> Any:
    """Return the scheduled ``PrimFunc(data, places, count)`` of ONNX's NonZero.

    ``data`` is boolean; ``places`` is ``(rank, elements)`` int64, a column for each element that is
    true, in row-major order, and zeros after ``count[0]`` columns: as indices they name the first
    element, which exists. ``count`` is ``(1,)`` int64::

        for element: places[0, found] = element; found += whether it is true  # without a branch
        for found: its element's index along each axis
        the rest is zeros
    """
    elements, rank = math.prod(shape), len(shape)
    parameters = (
        ("data", tuple(shape), "bool"),
        ("places", (rank, elements), "int64"),
        ("count", (1,), "int64"),
    )

    def body(data: Any, places: Any, count: Any) -> None:
        found = variable("int32", 0)
        with T.serial(elements) as i:
            T.buffer_store(places, T.cast(i, "int64"), [0, found[0]])
            add(found, T.cast(data[tuple(digits(i, shape))], "int32"))
        if rank > 1:
            with T.serial(found[0]) as i:
                element = T.Bind(T.cast(places[0, i], "int32"))
                for axis, index in enumerate(digits(element, shape)):
                    T.buffer_store(places, T.cast(index, "int64"), [axis, i])
        for axis in range(rank):
            with T.serial(elements - found[0]) as i:
                T.buffer_store(places, tirx.const(0, "int64"), [axis, found[0] + i])
        T.buffer_store(count, T.cast(found[0], "int64"), [0])

    return build_kernel(parameters, body)
