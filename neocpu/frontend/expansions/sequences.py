"""Operators along a sequence: the source of each position is computed, and then gathered."""

from __future__ import annotations

import numpy as np

from neocpu.frontend.expansions.writer import Writer

_MAX_INT64 = np.iinfo(np.int64).max


def reverse_sequence(w: Writer) -> None:
    """ReverseSequence: position t of a sequence of n reads n - 1 - t, if t < n."""
    shape = w.shape()
    time, batch = int(w.attribute("time_axis", 0)), int(w.attribute("batch_axis", 1))
    if {time, batch} != {0, 1}:
        raise ValueError(f"its time_axis {time} and batch_axis {batch} must be 0 and 1")
    steps = w.const(_along(np.arange(shape[time]), time, 2))
    lengths = w.reshape(w.input(1), _extents(shape[batch], batch, 2))
    mirrored = w.op("Sub", w.op("Sub", lengths, w.const(np.array(1))), steps)
    source = w.op("Where", w.op("Less", steps, lengths), mirrored, steps)
    # Both axes are flattened to rows; these are the numbers of the rows to read.
    stride = shape[1] if time == 0 else 1
    first = _along(np.arange(shape[batch]) * (1 if time == 0 else shape[1]), batch, 2)
    rows = w.op("Add", w.op("Mul", source, w.const(np.array(stride))), w.const(first))
    flat = w.reshape(w.input(0), [shape[0] * shape[1], *shape[2:]])
    taken = w.op("Gather", flat, w.reshape(rows, [shape[0] * shape[1]]), axis=0)
    w.give(w.reshape(taken, shape))


def tensor_scatter(w: Writer) -> None:
    """TensorScatter: position p of the cache reads p - start of the update, if it has that.

    With mode ``circular``, p - start is taken modulo the cache's length.
    """
    cache, update = w.shape(0), w.shape(1)
    axis = int(w.attribute("axis", -2)) % len(cache)
    positions = w.const(_along(np.arange(cache[axis]), axis, len(cache)))
    offsets = positions
    if w.has(2):
        starts = w.reshape(w.input(2), _extents(cache[0], 0, len(cache)))
        offsets = w.op("Sub", positions, starts)
    if w.attribute("mode", "linear") == "circular":
        length = w.const(np.array(cache[axis]))
        offsets = w.op("Mod", offsets, length)
    wide = w.op("Expand", offsets, w.const(np.array(cache)))
    last = w.const(np.array(update[axis] - 1))
    source = w.op("Max", w.op("Min", wide, last), w.const(np.array(0)))
    taken = w.op("GatherElements", w.input(1), source, axis=axis)
    w.give(w.op("Where", w.op("Equal", wide, source), taken, w.input(0)))


def cumulative_product(w: Writer) -> None:
    """CumProd by doubling: each step multiplies with the value twice as far back.

    x0, x1, x2, x3 -> x0, x0 x1, x1 x2, x2 x3 -> x0, x0 x1, x0 x1 x2, x0 x1 x2 x3
    """
    shape = w.shape()
    axis = int(w.constant(1)) % len(shape)
    reverse = bool(w.attribute("reverse", 0))
    value = _flipped(w, w.input(0), axis) if reverse else w.input(0)
    if w.attribute("exclusive", 0):
        value = _shifted(w, value, axis, 1)
    step = 1
    while step < shape[axis]:
        value = w.op("Mul", value, _shifted(w, value, axis, step))
        step *= 2
    w.give(_flipped(w, value, axis) if reverse else value)


def _shifted(w: Writer, value: str, axis: int, count: int) -> str:
    """Return a tensor moved along an axis, with ones before it, cut to its length."""
    shape = list(w.shape())
    kept = shape[axis] - count
    shape[axis] = count
    ones = w.const(np.ones(shape), like=0)
    if kept == 0:
        return ones
    front = w.op("Slice", value, w.const([0]), w.const([kept]), w.const([axis]))
    return str(w.op("Concat", ones, front, axis=axis))


def _flipped(w: Writer, value: str, axis: int) -> str:
    ends = w.const([-_MAX_INT64])
    return str(w.op("Slice", value, w.const([-1]), ends, w.const([axis]), w.const([-1])))


def _extents(count: int, axis: int, rank: int) -> list[int]:
    return [count if each == axis else 1 for each in range(rank)]


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return values.reshape(_extents(values.size, axis, rank))
