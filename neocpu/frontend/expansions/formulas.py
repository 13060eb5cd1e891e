"""Operators by their formulas: on matrices, along sequences, and with outputs for training."""

from __future__ import annotations

import numpy as np
import onnx

from neocpu.frontend.expansions.writer import Array, Writer

_MAX_ORDER = 4
_MAX_INT64 = np.iinfo(np.int64).max


def _determinant(w: Writer) -> None:
    """Det of small matrices, along their first rows: only without pivots is it exact."""
    *outer, order, columns = w.shape()
    if order != columns:
        raise ValueError(f"its matrices of {order} rows have {columns} columns")
    if order > _MAX_ORDER:
        raise ValueError(f"only matrices of up to {_MAX_ORDER} rows are supported, not {order}")
    flat = w.reshape(w.input(0), [*outer, order * order])
    cells = [
        w.op("Gather", flat, w.const(np.array(index)), axis=len(outer))
        for index in range(order * order)
    ]
    w.give(_minor(w, [cells[row * order : (row + 1) * order] for row in range(order)]))


def _minor(w: Writer, rows: list[list[str]]) -> str:
    if len(rows) == 1:
        return rows[0][0]
    total = ""
    for column, cell in enumerate(rows[0]):
        rest = [[*row[:column], *row[column + 1 :]] for row in rows[1:]]
        term = w.op("Mul", cell, _minor(w, rest))
        total = w.op("Sub" if column % 2 else "Add", total, term) if total else term
    return total


def _affine_grid(w: Writer) -> None:
    """AffineGrid: a product of the positions of all pixels, which are constant, and theta."""
    batch, _, *extents = (int(size) for size in w.constant(1))
    aligned = bool(w.attribute("align_corners", 0))
    if aligned and min(extents) < 2:
        raise ValueError("align_corners takes at least two pixels along each axis")
    # Pixels are at -1 to 1; if aligned, the outer ones are at the ends.
    along = [
        np.linspace(-1, 1, count) if aligned else (2 * np.arange(count) + 1) / count - 1
        for count in extents
    ]
    places = np.meshgrid(*along, indexing="ij")[::-1]  # x first
    base = np.stack([each.ravel() for each in places] + [np.ones(places[0].size)], axis=-1)
    turned = w.op("Transpose", w.input(0), perm=[0, 2, 1])
    grid = w.op("MatMul", w.const(base, like=0), turned)
    w.give(w.reshape(grid, [batch, *extents, len(extents)]))


def _eye_like(w: Writer) -> None:
    """EyeLike: a constant of the input's shape and, unless the node has one, the input's type."""
    rows, columns = w.shape()
    kind = w.attribute("dtype", 0) or w.graph.types[w.input(0)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    w.give(w.const(np.eye(rows, columns, int(w.attribute("k", 0))).astype(dtype)))


def _reverse_sequence(w: Writer) -> None:
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


def _tensor_scatter(w: Writer) -> None:
    """TensorScatter: cache position p reads update p - start, ``circular`` modulo the length."""
    cache, update = w.shape(0), w.shape(1)
    axis = int(w.attribute("axis", -2)) % len(cache)
    offsets = w.const(_along(np.arange(cache[axis]), axis, len(cache)))
    if w.input(2):
        starts = w.reshape(w.input(2), _extents(cache[0], 0, len(cache)))
        offsets = w.op("Sub", offsets, starts)
    if w.attribute("mode", "linear") == "circular":
        offsets = w.op("Mod", offsets, w.const(np.array(cache[axis])))
    wide = w.op("Expand", offsets, w.const(np.array(cache)))
    last = w.const(np.array(update[axis] - 1))
    source = w.op("Max", w.op("Min", wide, last), w.const(np.array(0)))
    taken = w.op("GatherElements", w.input(1), source, axis=axis)
    w.give(w.op("Where", w.op("Equal", wide, source), taken, w.input(0)))


def _cumulative_product(w: Writer) -> None:
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
    return w.op("Concat", ones, front, axis=axis)


def _flipped(w: Writer, value: str, axis: int) -> str:
    ends = w.const([-_MAX_INT64])
    return w.op("Slice", value, w.const([-1]), ends, w.const([axis]), w.const([-1]))


def _extents(count: int, axis: int, rank: int) -> list[int]:
    return [count if each == axis else 1 for each in range(rank)]


def _along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape(_extents(values.size, axis, rank))


def _batch_statistics(w: Writer) -> None:
    """BatchNormalization by the batch's own mean and variance, which update the running ones."""
    if not w.attribute("training_mode", 0):
        return
    shape = w.shape()
    axes = w.const([axis for axis in range(len(shape)) if axis != 1])
    mean = w.op("ReduceMean", w.input(0), axes)
    centred = w.op("Sub", w.input(0), mean)
    variance = w.op("ReduceMean", w.op("Mul", centred, centred), axes)
    raised = w.op("Add", variance, w.const(w.attribute("epsilon", 1e-5), like=0))
    wide = [1, shape[1], *[1] * (len(shape) - 2)]
    scaled = w.op("Mul", w.op("Div", centred, w.op("Sqrt", raised)), w.reshape(w.input(1), wide))
    w.give(w.op("Add", scaled, w.reshape(w.input(2), wide)))
    momentum = w.attribute("momentum", 0.9)
    for output, now in ((1, mean), (2, variance)):
        if w.output(output):
            old = w.op("Mul", w.input(output + 2), w.const(momentum, like=output + 2))
            new = w.op("Mul", w.reshape(now, [shape[1]]), w.const(1 - momentum, like=output + 2))
            w.give(w.op("Add", old, new), output)


def _dropout_mask(w: Writer) -> None:
    training = bool(w.input(2)) and bool(w.constant(2))
    ratio = float(w.constant(1)) if w.input(1) else 0.5
    if training and ratio != 0:
        raise ValueError("training_mode is not supported: export the model for inference")
    if training or w.output(1):
        w.give(w.input(0))
        if w.output(1):
            w.define(w.output(1), np.ones(w.shape(), bool))


EXPANSIONS = {
    "AffineGrid": _affine_grid,
    "BatchNormalization": _batch_statistics,
    "CumProd": _cumulative_product,
    "Det": _determinant,
    "Dropout": _dropout_mask,
    "EyeLike": _eye_like,
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
}
