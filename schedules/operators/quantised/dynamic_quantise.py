"""ONNX's DynamicQuantizeLinear: bytes, with a scale and a zero point computed from the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.radix_sort import variable
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    build_kernel,
    flat,
    for_share,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.tir.vector_terms import to_even

LANES = 16
LARGEST = 255.0


def lower_dynamic_quantise(shape: Sequence[int]) -> Any:
    """Return the scheduled ``PrimFunc(data, quantised, scale, zero)``.

    ``data`` and ``quantised`` are ``shape``, float32 and uint8; ``scale`` and ``zero`` are
    ``(1,)``, float32 and uint8. Data that are all 0 have a scale of 0. What is
    no number becomes 0, and the scale none.

    ::

        parallel part: the least and the largest of vectors of elements
        scale, zero of the least and the largest of all, and of 0
        parallel part: quantised = round(data / scale) + zero, between 0 and 255
    """
    size = math.prod(shape)
    parameters = (
        ("data", tuple(shape), "float32"),
        ("quantised", tuple(shape), "uint8"),
        ("scale", (1,), "float32"),
        ("zero", (1,), "uint8"),
    )

    def body(given: Any, written: Any, scale: Any, zero: Any) -> None:
        data, quantised = flat(given), flat(written)
        extremes = [T.alloc_buffer((ENOUGH_TASKS, LANES), "float32", layout=None) for _ in range(2)]
        with task_loop(ENOUGH_TASKS, size) as task:
            for found in extremes:
                T.buffer_store(found, splat(_float(0.0), LANES), [task, span(0, LANES)])

            def look(i: Any, lanes: int) -> None:
                value, here = T.Bind(data[span(i, lanes)]), (task, span(0, lanes))
                for found, better in zip(extremes, (T.min, T.max), strict=True):
                    T.buffer_store(found, better(value, found[here]), list(here))

            for_share(task, size, LANES, look)
        low, high = (variable("float32", _float(0.0)) for _ in range(2))
        with T.serial(ENOUGH_TASKS) as task, T.serial(LANES) as lane:
            for total, found, better in zip((low, high), extremes, (T.min, T.max), strict=True):
                T.buffer_store(total, better(found[task, lane], total[0]), [0])
        step = T.Bind((high[0] - low[0]) / _float(LARGEST))
        # Any scale is right if all data are zero.
        divisor = T.Bind(tirx.Select(step > _float(0.0), step, _float(1.0)))
        point = T.Bind(to_even(_bounded(_float(0.0) - low[0] / divisor, 1)))
        T.buffer_store(scale, step, [0])
        T.buffer_store(zero, T.cast(T.cast(point, "int32"), "uint8"), [0])
        with task_loop(ENOUGH_TASKS, size) as task:

            def write(i: Any, lanes: int) -> None:
                vector = f"x{lanes}" if lanes > 1 else ""
                moved = to_even(data[span(i, lanes)] / splat(divisor, lanes)) + splat(point, lanes)
                whole = T.cast(_bounded(moved, lanes), f"int32{vector}")
                T.buffer_store(quantised, T.cast(whole, f"uint8{vector}"), [span(i, lanes)])

            for_share(task, size, LANES, write)

    return build_kernel(parameters, body)


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


def _bounded(value: Any, lanes: int) -> Any:
    """Return a value clamped to 0 and 255, with 0 for NaN."""
    bound, least, most = T.Bind(value), *(splat(_float(end), lanes) for end in (0.0, LARGEST))
    return tirx.Select(bound > least, T.min(bound, most), least)
