"""Operators on matrices."""

from __future__ import annotations

import numpy as np
import onnx

from neocpu.frontend.expansions.writer import Array, Writer

_MAX_ORDER = 4


def determinant(w: Writer) -> None:
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


def affine_grid(w: Writer) -> None:
    """AffineGrid: a product of the positions of all pixels, which are constant, and theta."""
    batch, _, *extents = (int(size) for size in w.constant(1))
    aligned = bool(w.attribute("align_corners", 0))
    if aligned and min(extents) < 2:
        raise ValueError("align_corners takes at least two pixels along each axis")
    along = [_centres(extent, aligned=aligned) for extent in reversed(extents)]  # x first
    places = np.meshgrid(*reversed(along), indexing="ij")[::-1]
    base = np.stack([each.ravel() for each in places] + [np.ones(places[0].size)], axis=-1)
    turned = w.op("Transpose", w.input(0), perm=[0, 2, 1])
    grid = w.op("MatMul", w.const(base, like=0), turned)
    w.give(w.reshape(grid, [batch, *extents, len(extents)]))


def _centres(count: int, *, aligned: bool) -> Array:
    """Return positions of pixels from -1 to 1; if ``aligned``, the outer ones are at the ends."""
    return np.linspace(-1, 1, count) if aligned else (2 * np.arange(count) + 1) / count - 1


def eye_like(w: Writer) -> None:
    """EyeLike: a constant of the input's shape and, unless the node has one, the input's type."""
    rows, columns = w.shape()
    kind = w.attribute("dtype", 0) or w.graph.types[w.input(0)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    w.give(w.const(np.eye(rows, columns, int(w.attribute("k", 0))).astype(dtype)))


def list_numbers(w: Writer) -> None:
    """Slice, Squeeze and Unsqueeze with scalars for lists of one number, which converters need."""
    given = list(w.node.input[1:])
    listed = [
        w.const([int(w.constant(i))])
        if name in w.graph.constants and not w.constant(i).ndim
        else name
        for i, name in enumerate(given, 1)
    ]
    if listed != given:
        w.give(w.op(w.node.op_type, w.input(0), *listed))


def _minor(w: Writer, rows: list[list[str]]) -> str:
    if len(rows) == 1:
        return rows[0][0]
    total = ""
    for column, cell in enumerate(rows[0]):
        rest = [[*row[:column], *row[column + 1 :]] for row in rows[1:]]
        term = w.op("Mul", cell, _minor(w, rest))
        total = w.op("Sub" if column % 2 else "Add", total, term) if total else term
    return total
