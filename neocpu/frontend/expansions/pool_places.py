"""MaxPool with the output of the indices of maxima."""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from neocpu.frontend.expansions.writer import Array, Writer

_MAX_TAPS: Final = 256


def max_pool_places(w: Writer) -> None:
    """MaxPool with indices: a slice has one tap of all windows, and the maximum is over slices.

    Element `s * o + d * t` of the padded input is tap `t` of output `o`, along each axis.
    """
    if not w.used(1):
        return
    shape, kernel = w.shape(), list(w.attribute("kernel_shape", []))
    rank, outputs = len(kernel), w.made()[2:]
    if math.prod(kernel) > _MAX_TAPS:
        raise ValueError(f"its indices of windows of more than {_MAX_TAPS} are not supported")
    strides, dilations = (w.attribute(name, [1] * rank) for name in ("strides", "dilations"))
    begin = _begin(w, kernel, strides, dilations, outputs)
    reach = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(outputs, strides, kernel, dilations, strict=True)
    ]
    end = [max(0, r - b - n) for r, b, n in zip(reach, begin, shape[2:], strict=True)]
    lowest = np.finfo(w.dtype()).min if w.dtype().kind == "f" else np.iinfo(w.dtype()).min
    pads = w.const([0, 0, *begin, 0, 0, *end])
    padded = w.op("Pad", w.input(0), pads, w.const(lowest, like=0))
    axes, slices = w.const(list(range(2, rank + 2))), []
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        ends = [a + (o - 1) * s + 1 for a, o, s in zip(starts, outputs, strides, strict=True)]
        bounds = w.const(starts), w.const(ends), axes, w.const(strides)
        slices.append(w.op("Unsqueeze", w.op("Slice", padded, *bounds), w.const([0])))
    stacked = w.op("Concat", *slices, axis=0)
    w.give(w.op("ReduceMax", stacked, w.const([0]), keepdims=0))
    best = w.op("ArgMax", stacked, axis=0, keepdims=0)
    first, steps = _places(w, begin, outputs)
    w.give(w.op("Add", w.op("Gather", w.const(steps), best), w.const(first)), 1)


def _begin(
    w: Writer, kernel: list[int], strides: list[int], dilations: list[int], outputs: tuple[int, ...]
) -> list[int]:
    rank, auto = len(kernel), w.attribute("auto_pad", "NOTSET")
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        pads = w.attribute("pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * rank
        return list(pads[:rank])
    totals = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - n)
        for o, s, k, d, n in zip(outputs, strides, kernel, dilations, w.shape()[2:], strict=True)
    ]
    return [(total + (auto == "SAME_LOWER")) // 2 for total in totals]


def _places(w: Writer, begin: list[int], outputs: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the index of each window's first tap, and the offsets of the other taps from it."""
    (batch, channels, *extents), rank = w.shape(), len(begin)
    kernel = w.attribute("kernel_shape", [])
    strides, dilations = (w.attribute(name, [1] * rank) for name in ("strides", "dilations"))
    order = range(rank) if w.attribute("storage_order", 0) else range(rank - 1, -1, -1)
    pitch, pitches = 1, [0] * rank
    for axis in order:
        pitches[axis] = pitch
        pitch *= extents[axis]
    first = np.arange(batch * channels, dtype=np.int64).reshape(-1, *[1] * rank) * pitch
    steps = np.zeros([1] * rank, np.int64)
    for axis in range(rank):
        along = [-1 if each == axis else 1 for each in range(rank)]
        places = np.arange(outputs[axis]) * strides[axis] - begin[axis]
        first = first + (places * pitches[axis]).reshape(along)
        taps = np.arange(kernel[axis]) * dilations[axis] * pitches[axis]
        steps = steps + taps.reshape(along)
    return first.reshape(batch, channels, *outputs), steps.ravel()
