"""Operators that rank, such as TopK and ArgMax, by our own kernels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, const, dtype_of
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.ranking.arg_extremum import lower_arg_extremum
from neocpu.schedules.operators.ranking.top_k import lower_top_k


def top_k(node: Node) -> relax.Expr:
    """TopK with a constant k; always sorted."""
    data, wanted = node.inputs[0], node.constant(1)
    assert data is not None
    assert wanted is not None
    shape, k = node.shape(), int(wanted.item())
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    if not 0 < k <= shape[axis]:
        raise ValueError(f"k is {k}, the axis has {shape[axis]} elements")
    rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    largest = bool(node.attrs.get("largest", 1))
    kernel = lower_top_k(rows, k, largest=largest, dtype=dtype_of(data))
    types = [relax.TensorType((rows[0], k, rows[2]), dtype) for dtype in (dtype_of(data), "int64")]
    flat = node.emit(relax.op.reshape(data, rows))
    batch_rows = KernelRows(f"largest={largest}", [([axis], [axis, axis]) for axis in (0, 2)])
    found = node.bb.emit(call_kernel(node, "top_k", kernel, [flat], types, batch_rows))
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return relax.Tuple(
        [node.emit(relax.op.reshape(relax.TupleGetItem(found, i), result)) for i in range(2)]
    )


def arg_max(node: Node) -> relax.Expr:
    """ArgMax, where NaN counts as infinity."""
    return _arg_extremum(node, largest=True)


def arg_min(node: Node) -> relax.Expr:
    """ArgMin, where NaN counts as minus infinity."""
    return _arg_extremum(node, largest=False)


def hardmax(node: Node) -> relax.Expr:
    """Hardmax, where NaN counts as infinity."""
    axis, rank = int(node.attrs.get("axis", -1)), len(node.shape())
    largest = replace(node, attrs={"axis": axis, "keepdims": 1})
    places = np.arange(node.shape()[axis]).reshape(-1, *(1,) * (rank - 1 - axis % rank))
    hot = node.emit(relax.op.equal(node.emit(arg_max(largest)), const(places)))
    assert node.inputs[0] is not None
    return relax.op.astype(hot, dtype_of(node.inputs[0]))


def _arg_extremum(node: Node, *, largest: bool) -> relax.Expr:
    data, shape = node.inputs[0], node.shape()
    assert data is not None
    axis = int(node.attrs.get("axis", 0))
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"its axis {axis} is out of range for {len(shape)} dimensions")
    axis %= len(shape)
    last = bool(node.attrs.get("select_last_index", 0))
    rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    kernel = lower_arg_extremum(rows, dtype_of(data), largest=largest, last=last)
    flat = node.emit(relax.op.reshape(data, rows))
    types = [relax.TensorType((rows[0], rows[2]), "int64")]
    batch_rows = KernelRows(f"largest={largest} last={last}", [([0], [0]), ([2], [1])])
    found = node.emit(call_kernel(node, "arg_extremum", kernel, [flat], types, batch_rows))
    kept = [1] if int(node.attrs.get("keepdims", 1)) else []
    return relax.op.reshape(found, (*shape[:axis], *kept, *shape[axis + 1 :]))
