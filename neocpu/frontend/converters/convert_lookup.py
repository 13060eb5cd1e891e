"""Operators that read or write at computed positions, by kernels that check every index.

Constant indices are checked here: ONNX makes those out of bounds an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import (
    Converters,
    Node,
    const,
    constant_value,
    dtype_of,
    scalar,
    static_shape,
)
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.indexing.lookup import lower_gather_elements, lower_offsets
from neocpu.schedules.operators.indexing.scatter import (
    ElementsWorkload,
    RowsWorkload,
    lower_scatter_elements,
    lower_scatter_nd,
)


def _gather(node: Node) -> relax.Expr:
    """Gather, with negative indices counted from the end; no index reads out of bounds."""
    data, indices = node.inputs[:2]
    axis = int(node.attrs.get("axis", 0)) % len(node.shape())
    extent = node.shape()[axis]
    values = constant_value(indices)
    if values is None:
        return relax.op.take(data, within(node, indices, extent), axis, mode="clip")
    places = _counted(values, np.asarray(extent))
    if values.ndim:
        return relax.op.take(data, const(places), axis, mode="clip")
    at = int(places)
    piece = node.op.strided_slice(data, [axis], [at], [at + 1])
    return relax.op.squeeze(piece, [axis])


def _gather_elements(node: Node) -> relax.Expr:
    data, indices = node.inputs[:2]
    shapes, axis = _element_shapes(node)
    _require_within(indices, np.asarray(shapes[0][axis]))
    dtypes = dtype_of(data), dtype_of(indices)
    kernel = lower_gather_elements(*shapes, axis, *dtypes)
    return _call_flat(node, "gather_elements", kernel, [data, indices], node.shape(1), dtypes[0])


def _gather_nd(node: Node) -> relax.Expr:
    data, indices = node.inputs[:2]
    batch_dims = int(node.attrs.get("batch_dims", 0))
    shape, (*rows, depth) = node.shape(), node.shape(1)
    batch, rest = shape[:batch_dims], shape[batch_dims:]
    indexed, inner = rest[:depth], rest[depth:]
    if tuple(rows[:batch_dims]) != batch or len(indexed) != depth:
        raise ValueError(f"its indices {list(node.shape(1))} do not fit its data {list(shape)}")
    _require_within(indices, np.asarray(indexed))
    batches, total = math.prod(batch), math.prod(rows)
    kernel = lower_offsets(batches, total // batches, indexed, dtype_of(indices))
    batch_rows = _offsets_of(indexed) if batches == 1 else None
    into = (total, depth)
    offsets = _call_flat(node, "offsets", kernel, [indices], (total,), "int32", into, batch_rows)
    flat = node.op.reshape(data, (batches * math.prod(indexed), *inner))
    found = node.op.take(flat, offsets, 0, mode="clip")
    return relax.op.reshape(found, (*rows, *inner))


def _scatter_elements(node: Node) -> relax.Expr:
    """ScatterElements; an index out of bounds writes nothing."""
    data, indices, updates = node.inputs[:3]
    if node.shape(2) != node.shape(1):
        raise ValueError(
            f"its updates {list(node.shape(2))} have another shape than its indices "
            f"{list(node.shape(1))}"
        )
    shapes, axis = _element_shapes(node)
    _require_within(indices, np.asarray(shapes[0][axis]))
    return _scatter(node, [data, indices, updates], shapes, axis, _reduction(node))


def _max_unpool(node: Node) -> relax.Expr:
    """MaxUnpool; indices count elements of ``output_shape``; those out of bounds write nothing."""
    data, indices = node.inputs[:2]
    kernel = node.ints("kernel_shape", ())
    rank = len(kernel)
    strides, pads = node.ints("strides", [1] * rank), node.ints("pads", [0] * 2 * rank)
    extents = [
        (extent - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
        for i, extent in enumerate(node.shape()[2:])
    ]
    stated = node.constant(2)
    output = (*node.shape()[:2], *extents) if stated is None else tuple(map(int, stated))
    if len(output) != len(node.shape()) or output[:2] != node.shape()[:2]:
        raise ValueError(f"its output_shape {list(output)} does not fit its data")
    elements, count = math.prod(output), math.prod(node.shape())
    if min(output) < 1 or node.shape(1) != node.shape():
        raise ValueError(f"its indices {list(node.shape(1))} or its pads do not fit its data")
    _require_within(indices, np.asarray(elements))
    empty = node.op.zeros((elements,), dtype_of(data))
    flat = _scatter(node, [empty, indices, data], ((elements,), (count,)), 0, "none")
    return relax.op.reshape(node.emit(flat), output)


def _scatter_nd(node: Node) -> relax.Expr:
    data, indices = node.inputs[:2]
    shape, (*rows, depth) = node.shape(), node.shape(1)
    indexed, inner = shape[:depth], shape[depth:]
    if len(indexed) != depth or node.shape(2) != (*rows, *inner):
        raise ValueError(
            f"its indices {list(node.shape(1))} and updates {list(node.shape(2))} do not fit its "
            f"data {list(shape)}"
        )
    _require_within(indices, np.asarray(indexed))
    workload = RowsWorkload(
        extents=indexed,
        rows=math.prod(rows),
        inner=math.prod(inner),
        reduction=_reduction(node),
        dtype=dtype_of(data),
        index_dtype=dtype_of(indices),
    )
    kernel = lower_scatter_nd(workload)
    return _call_flat(node, "scatter_nd", kernel, node.inputs[:3], shape, dtype_of(data))


def _one_hot(node: Node) -> relax.Expr:
    """OneHot, with negative indices counted from the end; one out of bounds makes a row of off."""
    indices, values = node.data, node.inputs[2]
    extent, rank = int(node.required(1).item()), len(node.shape())
    axis = int(node.attrs.get("axis", -1)) % (rank + 1)
    if dtype_of(indices) not in ("float32", "float64", "uint64"):  # int64 has room for all others
        indices = node.op.astype(indices, "int64")
    below = relax.op.less(indices, scalar(0, indices))
    wrapped = node.op.add(indices, scalar(extent, indices))
    counted = node.op.where(node.emit(below), wrapped, indices)
    places = np.arange(extent).reshape(extent, *(1,) * (rank - axis)).astype(dtype_of(indices))
    expanded = node.op.expand_dims(counted, axis)
    hot = node.op.equal(expanded, const(places))
    array = constant_value(values)
    if array is not None:
        return relax.op.where(hot, const(array[1]), const(array[0]))
    off, on = (node.op.take(values, const(np.array(i)), 0, "clip") for i in range(2))
    return relax.op.where(hot, on, off)


def embed_layer_normalization(node: Node) -> relax.Expr:
    """ONNX Runtime's EmbedLayerNormalization; no identifier reads out of bounds."""
    words, segments, word_table, place_table, segment_table, gamma, beta = node.inputs[:7]
    mask, places = node.optional(7), node.optional(8)
    batch, length = node.shape()
    if places is None:
        places = const(np.tile(np.arange(length), (batch, 1)))
    total = _rows(node, word_table, words)
    total = node.op.add(total, _rows(node, place_table, places))
    if segments is not None:
        total = node.op.add(total, _rows(node, segment_table, segments))
    epsilon = node.number("epsilon", 1e-12)
    normal = node.emit(relax.op.nn.layer_norm(total, gamma, beta, axes=-1, epsilon=epsilon))
    if mask is None:
        return relax.Tuple([normal, const(np.zeros(batch, np.int32))])
    return relax.Tuple([normal, node.op.sum(mask, axis=1)])


def _rows(node: Node, table: relax.Expr, identifiers: relax.Expr) -> relax.Expr:
    places = within(node, identifiers, static_shape(table)[0])
    return node.op.take(table, places, 0, mode="clip")


def within(node: Node, indices: relax.Expr, extent: int) -> relax.Expr:
    """Return indices as int32, negative ones counted from the end, and all clamped to bounds."""
    values = constant_value(indices)
    if values is not None:
        return const(_counted(values, np.asarray(extent)).astype(np.int32))
    shape = static_shape(indices)
    count = math.prod(shape)
    kernel = lower_offsets(1, count, (extent,), dtype_of(indices))
    batch_rows = _offsets_of((extent,))
    return _call_flat(node, "offsets", kernel, [indices], shape, "int32", (count, 1), batch_rows)


def _offsets_of(extents: Sequence[int]) -> KernelRows:
    """Return that each offset is made of one tuple of indices."""
    return KernelRows("offsets", [([0], [0])], indexed=extents)


def _scatter(
    node: Node,
    args: Sequence[relax.Expr],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    axis: int,
    reduction: str,
) -> relax.Expr:
    data, indices = args[:2]
    workload = ElementsWorkload(
        data=shapes[0],
        indices=shapes[1],
        axis=axis,
        reduction=reduction,
        dtype=dtype_of(data),
        index_dtype=dtype_of(indices),
    )
    kernel = lower_scatter_elements(workload)
    return _call_flat(node, "scatter_elements", kernel, args, static_shape(data), dtype_of(data))


def _reduction(node: Node) -> str:
    name = node.string("reduction", "none")
    if name != "none" and dtype_of(node.data) == "bool":
        raise ValueError(f"reduction '{name}' of booleans is not supported")
    return name


def _call_flat(
    node: Node,
    name: str,
    kernel: object,
    args: Sequence[relax.Expr],
    shape: Sequence[int],
    dtype: str,
    as_shape: tuple[int, ...] | None = None,
    rows: KernelRows | None = None,
) -> relax.Expr:
    """Call a kernel of flat buffers, or of ``as_shape``, and return its result in ``shape``."""
    flat = [node.op.reshape(arg, as_shape or (math.prod(static_shape(arg)),)) for arg in args]
    found = node.call(name, kernel, flat, [((math.prod(shape),), dtype)], rows)
    return node.op.reshape(found, tuple(shape))


def _element_shapes(node: Node) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Return the shapes of data and indices with equal neighbouring axes merged, and the axis."""
    data, indices = node.shape(), node.shape(1)
    axis = int(node.attrs.get("axis", 0)) % max(len(data), 1)
    fits = len(data) == len(indices) and all(
        i == axis or theirs <= mine
        for i, (mine, theirs) in enumerate(zip(data, indices, strict=True))
    )
    if not fits or not data:
        raise ValueError(f"its indices {list(indices)} do not fit its data {list(data)}")
    before, after = (
        _merge(data[part], indices[part]) for part in (slice(axis), slice(axis + 1, None))
    )
    merged = ((*before[0], data[axis], *after[0]), (*before[1], indices[axis], *after[1]))
    return merged, len(before[0])


def _merge(
    data: tuple[int, ...], indices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return ((math.prod(data),), (math.prod(data),)) if data == indices else (data, indices)


def _require_within(indices: relax.Expr, extents: np.ndarray) -> None:
    values = constant_value(indices)
    if values is not None:
        _counted(values, extents)


def _counted(indices: np.ndarray, extents: np.ndarray) -> np.ndarray:
    """Return constant indices, negative ones counted from the end; refuse those out of bounds."""
    extents = extents.astype(indices.dtype)
    counted = np.where(indices < 0, indices + extents, indices).astype(indices.dtype)
    wrong = (counted < 0) | (counted >= extents)
    if wrong.any():
        reached = np.broadcast_to(extents, indices.shape)[wrong][0]
        raise ValueError(f"index {indices[wrong][0]} is out of bounds of an axis of {reached}")
    return counted


CONVERTERS: Converters = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
