"""Operators on windows of an image: MaxPool with indices, and DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neocpu.frontend.expansions.writer import Array, Writer

_MAX_TAPS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    outputs: tuple[int, ...]

    @property
    def reach(self) -> list[int]:
        """The pixels from the first window's begin to the last one's end."""
        axes = zip(self.outputs, self.strides, self.kernel, self.dilations, strict=True)
        return [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in axes]


def _max_pool_places(w: Writer) -> None:
    """MaxPool with indices: a slice has one tap of all windows, and the maximum is over slices.

    Element `s * o + d * t` of the padded input is tap `t` of output `o`, along each axis.
    """
    if not w.output(1):
        return
    kernel = list(w.attribute("kernel_shape", []))
    rank = len(kernel)
    if math.prod(kernel) > _MAX_TAPS:
        raise ValueError(f"its indices of windows of more than {_MAX_TAPS} are not supported")
    strides, dilations = (w.attribute(name, [1] * rank) for name in ("strides", "dilations"))
    pool = _Pool(kernel=kernel, strides=strides, dilations=dilations, outputs=w.made()[2:])
    begin = _begin(w, pool)
    end = [max(0, r - b - n) for r, b, n in zip(pool.reach, begin, w.shape()[2:], strict=True)]
    lowest = np.finfo(w.dtype()).min if w.dtype().kind == "f" else np.iinfo(w.dtype()).min
    pads = w.const([0, 0, *begin, 0, 0, *end])
    padded = w.op("Pad", w.input(0), pads, w.const(lowest, like=0))
    axes, slices = w.const(list(range(2, rank + 2))), []
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        ends = [a + (o - 1) * s + 1 for a, o, s in zip(starts, pool.outputs, strides, strict=True)]
        bounds = w.const(starts), w.const(ends), axes, w.const(strides)
        slices.append(w.op("Unsqueeze", w.op("Slice", padded, *bounds), w.const([0])))
    stacked = w.op("Concat", *slices, axis=0)
    w.give(w.op("ReduceMax", stacked, w.const([0]), keepdims=0))
    best = w.op("ArgMax", stacked, axis=0, keepdims=0)
    first, steps = _indices(w, pool, begin)
    w.give(w.op("Add", w.op("Gather", w.const(steps), best), w.const(first)), 1)


def _begin(w: Writer, pool: _Pool) -> list[int]:
    rank, auto = len(pool.kernel), w.attribute("auto_pad", "NOTSET")
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        return list(w.attribute("pads", [0] * rank)[:rank]) if auto == "NOTSET" else [0] * rank
    totals = [max(0, r - n) for r, n in zip(pool.reach, w.shape()[2:], strict=True)]
    return [(total + (auto == "SAME_LOWER")) // 2 for total in totals]


def _indices(w: Writer, pool: _Pool, begin: list[int]) -> tuple[Array, Array]:
    """Return the index of each window's first tap, and the offsets of the other taps from it."""
    (batch, channels, *extents), rank = w.shape(), len(begin)
    order = range(rank) if w.attribute("storage_order", 0) else range(rank - 1, -1, -1)
    pitch, pitches = 1, [0] * rank
    for axis in order:
        pitches[axis] = pitch
        pitch *= extents[axis]
    first = np.arange(batch * channels, dtype=np.int64).reshape(-1, *[1] * rank) * pitch
    steps = np.zeros([1] * rank, np.int64)
    for axis in range(rank):
        along = [-1 if each == axis else 1 for each in range(rank)]
        places = np.arange(pool.outputs[axis]) * pool.strides[axis] - begin[axis]
        first = first + (places * pitches[axis]).reshape(along)
        taps = np.arange(pool.kernel[axis]) * pool.dilations[axis] * pitches[axis]
        steps = steps + taps.reshape(along)
    return first.reshape(batch, channels, *pool.outputs), steps.ravel()


def _deformable_convolution(w: Writer) -> None:
    """DeformConv: GridSample reads all taps, (N, C, taps, H, W), and a 1x1 Conv adds them up."""
    if len(w.shape(0)) != 4:
        raise ValueError("only convolutions of images are supported")
    batch, channels, height, width = w.shape(0)
    outs, depth, *kernel = w.shape(1)
    parts, rows, columns = int(w.attribute("offset_group", 1)), *w.shape(2)[2:]
    taps = math.prod(kernel)
    grid = _places(w, kernel, (parts, rows, columns))
    grouped = w.reshape(w.input(0), [batch * parts, channels // parts, height, width])
    taken = w.op("GridSample", grouped, grid, mode="linear", padding_mode="zeros")
    if w.input(4):
        mask = w.reshape(w.input(4), [batch * parts, 1, taps * rows, columns])
        taken = w.op("Mul", taken, mask)
    stacked = w.reshape(taken, [batch, channels * taps, rows, columns])
    weights = w.reshape(w.input(1), [outs, depth * taps, 1, 1])
    bias = [w.input(3)] if w.input(3) else []
    w.give(w.op("Conv", stacked, weights, *bias, group=int(w.attribute("group", 1))))


def _places(w: Writer, kernel: Sequence[int], grid: tuple[int, int, int]) -> str:
    """Return the positions of taps: (N * groups, taps * rows, columns, 2), x first, -1 to 1."""
    parts, rows, columns = grid
    (batch, _, *image), taps = w.shape(0), math.prod(kernel)
    strides, dilations = (w.attribute(name, [1, 1]) for name in ("strides", "dilations"))
    pads = w.attribute("pads", [0] * 4)
    offsets = w.reshape(w.input(2), [batch * parts, taps, 2, rows, columns])
    steps = [
        np.arange(count) * stride - pad
        for count, stride, pad in zip((rows, columns), strides, pads[:2], strict=True)
    ]
    inner = [np.arange(k) * d for k, d in zip(kernel, dilations, strict=True)]
    ys = (inner[0][:, None, None, None] + steps[0][:, None]) + np.zeros((*kernel, rows, columns))
    xs = (inner[1][:, None, None] + steps[1]) + np.zeros((*kernel, rows, columns))
    base = np.stack([ys, xs], axis=2).reshape(1, taps, 2, rows, columns)
    placed = w.op("Add", offsets, w.const(base, like=2))
    # The centre of pixel p of n is at (2 p + 1) / n - 1.
    sizes = np.array(image, float).reshape(1, 1, 2, 1, 1)
    scaled = w.op("Mul", placed, w.const(2 / sizes, like=2))
    centred = w.op("Add", scaled, w.const(1 / sizes - 1, like=2))
    halves = [w.op("Gather", centred, w.const(np.array(axis)), axis=2) for axis in (1, 0)]
    last = [w.reshape(half, [batch * parts, taps * rows, columns, 1]) for half in halves]
    return w.op("Concat", *last, axis=3)


EXPANSIONS = {"DeformConv": _deformable_convolution, "MaxPool": _max_pool_places}
