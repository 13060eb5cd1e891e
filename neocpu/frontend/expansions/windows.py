"""Operators on windows of an image, written as sampling and convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neocpu.frontend.expansions.writer import Writer


def deformable_convolution(w: Writer) -> None:
    """DeformConv: GridSample reads all taps at their offsets, and a 1x1 Conv adds them up.

    X of shape (N, C, H, W) becomes (N, C, taps, rows, columns): the taps of a channel are adjacent.
    """
    if len(w.shape(0)) != 4:
        raise ValueError("only convolutions of images are supported")
    batch, channels, height, width = w.shape(0)
    outs, depth, *kernel = w.shape(1)
    parts, rows, columns = int(w.attribute("offset_group", 1)), *w.shape(2)[2:]
    taps = math.prod(kernel)
    grid = _places(w, kernel, (parts, rows, columns))
    grouped = w.reshape(w.input(0), [batch * parts, channels // parts, height, width])
    taken = w.op("GridSample", grouped, grid, mode="linear", padding_mode="zeros")
    if w.has(4):
        mask = w.reshape(w.input(4), [batch * parts, 1, taps * rows, columns])
        taken = w.op("Mul", taken, mask)
    stacked = w.reshape(taken, [batch, channels * taps, rows, columns])
    weights = w.reshape(w.input(1), [outs, depth * taps, 1, 1])
    bias = [w.input(3)] if w.has(3) else []
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
    halves = [
        w.op("Gather", centred, w.const(np.array(axis)), axis=2) for axis in (1, 0)
    ]  # each (N * groups, taps, rows, columns)
    last = [w.reshape(half, [batch * parts, taps * rows, columns, 1]) for half in halves]
    return str(w.op("Concat", *last, axis=3))
