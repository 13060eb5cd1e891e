"""Operators that make or move data: constants, pad, concat, split, reshape, expand, tile."""

from __future__ import annotations

import numpy as np
import onnx
from tvm import relax

from neocpu.frontend.checks.model_limits import MAX_PARTS
from neocpu.frontend.converters.node import Converters, Node, const, constant_value, static_shape

PAD_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
"""TVM's names of padding modes by ONNX's, without that of constants."""


def _pad(node: Node) -> relax.Expr:
    """Pad as ``relax.nn.pad``; negative pads crop, and long reflections repeat."""
    rank, amounts, axes = len(node.shape()), node.required(1), node.constant(3)
    chosen = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes]
    begin, end = [0] * rank, [0] * rank
    for index, axis in enumerate(chosen):
        begin[axis], end[axis] = int(amounts[index]), int(amounts[len(chosen) + index])
    data = _crop(node, begin, end)
    mode = node.string("mode", "constant")
    if mode == "reflect":
        data = _reflect_far(node, data, begin, end)
    widths = [max(amount, 0) for pair in zip(begin, end, strict=True) for amount in pair]
    if not any(widths):
        return data
    if mode == "constant":
        fill = node.constant(2)
        return relax.op.nn.pad(data, widths, pad_value=0.0 if fill is None else float(fill.item()))
    return relax.op.nn.pad(data, widths, pad_mode=PAD_MODES[mode])


def _reflect_far(node: Node, data: relax.Expr, begin: list[int], end: list[int]) -> relax.Expr:
    """Pad axes shorter than their reflections, which TVM gets wrong; set their pads to 0."""
    for axis, extent in enumerate(static_shape(data)):
        before, after = max(begin[axis], 0), max(end[axis], 0)
        if max(before, after) >= extent:
            last = extent - 1
            period = max(1, 2 * last)
            places = np.abs((np.arange(-before, extent + after) + last) % period - last)
            data = node.op.take(data, const(places), axis, mode="clip")
            begin[axis] = end[axis] = 0
    return data


def _crop(node: Node, begin: list[int], end: list[int]) -> relax.Expr:
    cropped = [axis for axis in range(len(begin)) if begin[axis] < 0 or end[axis] < 0]
    if not cropped:
        return node.data
    starts = [max(-begin[axis], 0) for axis in cropped]
    stops = [node.shape()[axis] + min(end[axis], 0) for axis in cropped]
    return node.op.strided_slice(node.data, cropped, starts, stops)


def _concat(node: Node) -> relax.Expr:
    """Concat; more than `MAX_PARTS` tensors are concatenated in groups first."""
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    parts = list(node.inputs)
    while len(parts) > MAX_PARTS:
        groups = [parts[i : i + MAX_PARTS] for i in range(0, len(parts), MAX_PARTS)]
        parts = [node.bind(relax.op.concat(group, axis)) for group in groups]
    return relax.op.concat(parts, axis)


def _split(node: Node) -> relax.Expr:
    """Split into constant sizes, or into equal chunks, except that the last may be smaller."""
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    sizes = node.constant(1)
    if sizes is None:
        count = int(node.attrs.get("num_outputs", len(node.outputs)))
        extent = node.shape()[axis]
        chunk = -(-extent // count)
        sizes = np.minimum(np.full(count, chunk), extent - chunk * np.arange(count))
    if sum(sizes) != node.shape()[axis]:
        listed = " + ".join(str(int(size)) for size in sizes)
        raise ValueError(
            f"it splits {node.shape()[axis]} elements into {listed}, which are {int(sum(sizes))}"
        )
    if min(sizes) < 1:
        raise ValueError(
            f"it splits {node.shape()[axis]} elements into {len(sizes)} parts, some empty"
        )
    if len(sizes) == 1:
        return relax.Tuple([node.data])
    return _parts(node, node.data, [int(size) for size in sizes], axis)


def _parts(node: Node, data: relax.Expr, sizes: list[int], axis: int) -> relax.Expr:
    """Split ``data``; for more than `MAX_PARTS` pieces, into groups of them first."""
    if len(sizes) <= MAX_PARTS:
        return relax.op.split(data, _ends(sizes), axis)
    # Groups of even sizes, so that none is a single piece.
    groups = [list(group) for group in np.array_split(sizes, min(MAX_PARTS, len(sizes) // 2))]
    whole = node.bind(relax.op.split(data, _ends([sum(group) for group in groups]), axis))
    pieces = []
    for index, group in enumerate(groups):
        split = node.bind(_parts(node, node.bind(relax.TupleGetItem(whole, index)), group, axis))
        pieces += [relax.TupleGetItem(split, i) for i in range(len(group))]
    return relax.Tuple(pieces)


def _ends(sizes: list[int]) -> list[int]:
    return [int(at) for at in np.cumsum(sizes)[:-1]]


def _reshape(node: Node) -> relax.Expr:
    extents = [int(extent) for extent in node.required(1)]
    if not int(node.attrs.get("allowzero", 0)):
        extents = [node.shape()[i] if extent == 0 else extent for i, extent in enumerate(extents)]
    array = constant_value(node.data)
    if array is not None:
        return const(array.reshape(extents))
    return relax.op.reshape(node.data, extents)


def _expand(node: Node) -> relax.Expr:
    """Expand; axes of the data may also be larger than those of the target shape."""
    shape = np.broadcast_shapes(node.shape(), tuple(map(int, node.required(1))))
    return relax.op.broadcast_to(node.data, shape)


def _tile(node: Node) -> relax.Expr:
    """Tile; with constant repeats it is one operator, not the kernel that TVM makes."""
    repeats = constant_value(node.inputs[1])
    if repeats is None:
        return node.convert_by_tvm("Tile", node.inputs)
    return relax.op.tile(node.data, [int(count) for count in repeats])


def _space_to_depth(node: Node) -> relax.Expr:
    batch, channels, height, width = node.shape()
    block = int(node.attrs["blocksize"])
    grid = [batch, channels, height // block, block, width // block, block]
    order = [0, 1, 3, 5, 2, 4] if node.string("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    blocks = node.op.reshape(node.data, grid)
    moved = node.op.permute_dims(blocks, order)
    shape = [batch, channels * block * block, height // block, width // block]
    return relax.op.reshape(moved, shape)


def _constant(node: Node) -> relax.Expr:
    """Constant that is a graph output; all others were made initializers before."""
    if len(node.attrs) != 1:
        raise ValueError(f"it has {len(node.attrs)} values ({', '.join(sorted(node.attrs))})")
    (value,) = node.attrs.values()
    if isinstance(value, onnx.TensorProto):
        return const(onnx.numpy_helper.to_array(value))
    array = np.asarray(value)
    return const(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))


CONVERTERS: Converters = {
    "Concat": _concat,
    "Constant": _constant,
    "Expand": _expand,
    "Pad": _pad,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Tile": _tile,
}
