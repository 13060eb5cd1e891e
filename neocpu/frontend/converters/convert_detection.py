"""Operators that rank: TopK, as a kernel of our own, ArgMax and its kin."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, const, dtype_of, scalar
from neocpu.passes.apart.kernel_rows import KernelRows
from neocpu.schedules.operators.ranking.top_k import lower_top_k


def top_k(node: Node) -> relax.Expr:
    """TopK with a constant k; sorted whether asked for or not."""
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
    apart = KernelRows(f"largest={largest}", [([axis], [axis, axis]) for axis in (0, 2)])
    found = node.bb.emit(call_kernel(node, "top_k", kernel, [flat], types, apart))
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return relax.Tuple(
        [node.emit(relax.op.reshape(relax.TupleGetItem(found, i), result)) for i in range(2)]
    )


def arg_max(node: Node) -> relax.Expr:
    """ArgMax, where NaN counts as infinity."""
    return _arg_extremum(node, "ArgMax", np.inf)


def arg_min(node: Node) -> relax.Expr:
    """ArgMin, where NaN counts as minus infinity."""
    return _arg_extremum(node, "ArgMin", -np.inf)


def hardmax(node: Node) -> relax.Expr:
    """Hardmax, where NaN counts as infinity."""
    axis, rank = int(node.attrs.get("axis", -1)), len(node.shape())
    largest = replace(node, attrs={"axis": axis, "keepdims": 1})
    places = np.arange(node.shape()[axis]).reshape(-1, *(1,) * (rank - 1 - axis % rank))
    hot = node.emit(relax.op.equal(node.emit(arg_max(largest)), const(places)))
    assert node.inputs[0] is not None
    return relax.op.astype(hot, dtype_of(node.inputs[0]))


def _arg_extremum(node: Node, op_type: str, extreme: float) -> relax.Expr:
    """Convert by TVM: where nothing compares, its result is no index of the axis."""
    data = node.inputs[0]
    assert data is not None
    if dtype_of(data).startswith("float"):
        nothing = node.emit(relax.op.isnan(data))
        data = node.emit(relax.op.where(nothing, scalar(extreme, data), data))
    found = node.emit(node.convert_by_tvm(op_type, [data]))
    last = node.shape()[int(node.attrs.get("axis", 0))] - 1
    inside = node.emit(relax.op.minimum(found, scalar(last, found)))
    return relax.op.maximum(inside, scalar(0, found))
