"""Operators that make or move data: constants, pad, split, reshape, expand, gather."""

from __future__ import annotations

import numpy as np
import onnx
from tvm import relax

from neocpu.frontend.node import Node, const, constant_value, dtype_of

_PAD_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def pad(node: Node) -> relax.Expr:
    """Pad as ``relax.nn.pad``; negative pads crop."""
    rank = len(node.shape())
    amounts = node.constant(1)
    assert amounts is not None
    axes = node.constant(3)
    chosen = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes]
    begin, end = [0] * rank, [0] * rank
    for index, axis in enumerate(chosen):
        begin[axis], end[axis] = int(amounts[index]), int(amounts[len(chosen) + index])
    data = _crop(node, begin, end)
    widths = [max(amount, 0) for pair in zip(begin, end, strict=True) for amount in pair]
    if not any(widths):
        return data
    mode = node.string("mode", "constant")
    if mode == "constant":
        fill = node.constant(2)
        return relax.op.nn.pad(data, widths, pad_value=0.0 if fill is None else float(fill.item()))
    return relax.op.nn.pad(data, widths, pad_mode=_PAD_MODES[mode])


def _crop(node: Node, begin: list[int], end: list[int]) -> relax.Expr:
    cropped = [axis for axis in range(len(begin)) if begin[axis] < 0 or end[axis] < 0]
    if not cropped:
        return node.inputs[0]
    starts = [max(-begin[axis], 0) for axis in cropped]
    stops = [node.shape()[axis] + min(end[axis], 0) for axis in cropped]
    return node.emit(relax.op.strided_slice(node.inputs[0], cropped, starts, stops))


def split(node: Node) -> relax.Expr:
    """Split at constant sizes, or into chunks of which the last may be smaller."""
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    sizes = node.constant(1)
    if sizes is None:
        count = int(node.attrs.get("num_outputs", len(node.outputs)))
        extent = node.shape()[axis]
        chunk = -(-extent // count)
        sizes = np.minimum(np.full(count, chunk), extent - chunk * np.arange(count))
    if len(sizes) == 1:
        return relax.Tuple([node.inputs[0]])
    return relax.op.split(node.inputs[0], [int(at) for at in np.cumsum(sizes)[:-1]], axis)


def reshape(node: Node) -> relax.Expr:
    """Reshape to a static shape."""
    wanted = node.constant(1)
    assert wanted is not None
    extents = [int(extent) for extent in wanted]
    if not int(node.attrs.get("allowzero", 0)):
        extents = [node.shape()[i] if extent == 0 else extent for i, extent in enumerate(extents)]
    array = constant_value(node.inputs[0])
    if array is not None:
        return const(array.reshape(extents))
    return relax.op.reshape(node.inputs[0], extents)


def expand(node: Node) -> relax.Expr:
    """Expand, which may also leave axes of the data larger than the shape it is given."""
    wanted = node.constant(1)
    assert wanted is not None
    shape = np.broadcast_shapes(node.shape(), tuple(int(extent) for extent in wanted))
    return relax.op.broadcast_to(node.inputs[0], shape)


def gather(node: Node) -> relax.Expr:
    """Gather, with negative indices counted from the end; no index reads out of bounds."""
    data, indices = node.inputs[:2]
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    extents = np.asarray(node.shape()[axis])
    values = constant_value(indices)
    if values is not None and values.ndim == 0:
        at = int(_counted(values, extents))
        piece = node.emit(relax.op.strided_slice(data, [axis], [at], [at + 1]))
        return relax.op.squeeze(piece, [axis])
    return relax.op.take(data, _within(node, indices, extents), axis, mode="clip")


def gather_elements(node: Node) -> relax.Expr:
    """GatherElements, with negative indices counted from the end; none reads out of bounds."""
    data, indices = node.inputs[:2]
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    extents = np.asarray(node.shape()[axis])
    return relax.op.gather_elements(data, _within(node, indices, extents), axis)


def gather_nd(node: Node) -> relax.Expr:
    """GatherND, with negative indices counted from the end; no index reads out of bounds."""
    batch_dims = int(node.attrs.get("batch_dims", 0))
    indexed = node.shape()[batch_dims:][: node.shape(1)[-1]]
    indices = _within(node, node.inputs[1], np.asarray(indexed))
    return relax.op.gather_nd(node.inputs[0], indices, batch_dims)


def _within(node: Node, indices: relax.Expr, extents: np.ndarray) -> relax.Expr:
    """Return indices with those below zero counted from the end, and all moved into bounds."""
    extents = extents.astype(dtype_of(indices))
    values = constant_value(indices)
    if values is not None:
        return const(_counted(values, extents))
    zero, size = const(np.zeros_like(extents)), const(extents)
    wrapped = node.emit(relax.op.add(indices, size))
    counted = node.emit(relax.op.where(relax.op.less(indices, zero), wrapped, indices))
    return relax.op.minimum(relax.op.maximum(counted, zero), const(extents - 1))


def _counted(indices: np.ndarray, extents: np.ndarray) -> np.ndarray:
    """Return constant indices, those below zero counted from the end; refuse others out of bounds.

    ONNX makes them an error. Those computed at run time are moved into bounds instead.
    """
    counted = np.where(indices < 0, indices + extents, indices).astype(indices.dtype)
    wrong = (counted < 0) | (counted >= extents)
    if wrong.any():
        reached = np.broadcast_to(extents, indices.shape)[wrong][0]
        raise ValueError(f"index {indices[wrong][0]} is out of bounds of an axis of {reached}")
    return counted


def space_to_depth(node: Node) -> relax.Expr:
    """SpaceToDepth in both channel orders."""
    batch, channels, height, width = node.shape()
    block = int(node.attrs["blocksize"])
    grid = [batch, channels, height // block, block, width // block, block]
    order = [0, 1, 3, 5, 2, 4] if node.string("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    blocks = node.emit(relax.op.reshape(node.inputs[0], grid))
    moved = node.emit(relax.op.permute_dims(blocks, order))
    shape = [batch, channels * block * block, height // block, width // block]
    return relax.op.reshape(moved, shape)


def constant(node: Node) -> relax.Expr:
    """Constant that is a graph output; all others were lifted."""
    (value,) = node.attrs.values()
    if isinstance(value, onnx.TensorProto):
        return const(onnx.numpy_helper.to_array(value))
    array = np.asarray(value)
    return const(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))
