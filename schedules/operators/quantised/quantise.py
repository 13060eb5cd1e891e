"""Quantisation and its inverse, as ONNX defines them.

In TE they are for values that no kernel fuses. ONNX's DynamicQuantizeLinear has a kernel, and so
have float32 feature maps with few channels that become NCHW4c of 8 bits in one pass: quantising
first and changing the layout afterwards would write and read every byte once more. Four channels of
a pixel are one word, so a vector of words takes a vector of pixels from each channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tvm import te, tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.layout_transform import Tile, emit_tiles
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
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

LANES: Final = 16
LARGEST: Final = 255.0
WORD: Final = 4
"""The number of channels in a block of `DESTINATION`."""
SOURCE: Final = Format(NCHW, "float32")
DESTINATION: Final = Format(DataLayout(WORD), "uint8")


def quantise(data: te.Tensor, scale: Any, zero: Any, axis: int, dtype: str) -> te.Tensor:
    """Return ``saturate(round(data / scale) + zero)``, halves to even.

    - `scale`, `zero`: one number for all elements, or a vector along ``axis``.
    - `dtype`: ``int8`` or ``uint8``.
    """
    limits = np.iinfo(dtype)
    low, high = (tirx.const(float(limit), "float32") for limit in (limits.min, limits.max))

    def element(*place: Any) -> Any:
        scaled = data[place] / _along(scale, place[axis : axis + 1])
        whole = to_even(scaled)
        moved = whole + _along(zero, place[axis : axis + 1]).astype("float32")
        return tirx.max(tirx.min(moved, high), low).astype(dtype)

    return te.compute(data.shape, element, name="quantise")


def dequantise(data: te.Tensor, scale: Any, zero: Any, axis: int) -> te.Tensor:
    """Return ``(data - zero) * scale`` in float32: see `quantise`."""

    def element(*place: Any) -> Any:
        index = place[axis : axis + 1]
        # The difference of two 8-bit numbers is exact in float32.
        centred = data[place].astype("float32") - _along(zero, index).astype("float32")
        return centred * _along(scale, index)

    return te.compute(data.shape, element, name="dequantise")


def _along(values: Any, index: Any) -> Any:
    """Return the element of a vector, or the single number."""
    return values[index] if len(values.shape) else values[()]


def lower_dynamic_quantise(shape: Sequence[int]) -> Any:
    """Return the scheduled ``PrimFunc(data, quantised, scale, zero)``.

    ``data`` and ``quantised`` are ``shape``, float32 and uint8; ``scale`` and ``zero`` are
    ``(1,)``, float32 and uint8. Data that are all 0 have a scale of 0. What is
    no number becomes 0, and the scale none::

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


def lower_quantised_pack(
    shape: tuple[int, ...], scale: float, zero: int, target: CpuTarget
) -> tirx.PrimFunc:
    """Return the scheduled ``PrimFunc(data, output)`` from `SOURCE` to `DESTINATION`.

    - `shape`: the logical NCHW shape. Lanes that pad the channels are zero.
    - `scale`, `zero`: the stored values are ``saturate(round(data / scale) + zero)``, halves to
      even, as in `quantise`.
    """
    n, c, h, w = shape
    lanes = target.lanes("float32")
    while lanes > h * w:
        lanes //= 2
    parameters = (
        ("data", SOURCE.shape(shape), SOURCE.dtype),
        ("output", DESTINATION.shape(shape), DESTINATION.dtype),
    )

    def emit(data: Any, words: Any, tile: Tile) -> None:
        word = None
        for k in range(tile.valid):
            real = data[tile.image, tile.chunk * tile.block + k, span(tile.pixel, lanes)]
            byte = _stored(real, scale, zero, lanes)
            if word is None:
                word = byte
            else:
                moved = tirx.shift_left(byte, splat(tirx.const(8 * k, "int32"), lanes))
                word = tirx.bitwise_or(word, moved)
        T.buffer_store(words, word, [tile.image, tile.chunk, span(tile.pixel, lanes)])

    def body(data: Any, output: Any) -> None:
        planes = T.decl_buffer((n, c, h * w), "float32", data=data.data, layout=None)
        words = (n, ceil_div(c, WORD), h * w)
        stored = T.decl_buffer(words, "int32", data=output.data, layout=None)
        emit_tiles((n, c, h * w), WORD, (WORD, lanes), emit, planes, stored)

    return build_kernel(parameters, body)


def _stored(real: Any, scale: float, zero: int, lanes: int) -> Any:
    """Return a vector of float32 numbers as stored, in int32."""
    kind = "float32" if lanes == 1 else f"float32x{lanes}"

    def every(value: float) -> Any:
        return splat(tirx.const(value, "float32"), lanes)

    whole = to_even(real / every(scale))
    moved = whole + every(float(zero))
    stored = tirx.max(tirx.min(moved, every(LARGEST)), every(0.0)).astype(
        kind.replace("float32", "int32")
    )
    # LLVM compiles minima and maxima as if there were no NaN; a NaN then has bits beyond a byte.
    return tirx.bitwise_and(stored, splat(tirx.const(int(LARGEST), "int32"), lanes))
