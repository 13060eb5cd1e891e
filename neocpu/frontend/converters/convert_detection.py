"""Operators that rank: NonMaxSuppression and TopK, as kernels of our own, ArgMax and its kin.

What a NonMaxSuppression selects has a static number of rows here, of which a count says how many
are real; see `neocpu.frontend.bounded_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, const, dtype_of, scalar
from neocpu.schedules.operators.non_max_suppression import (
    NonMaxSuppressionWorkload,
    lower_non_max_suppression,
)
from neocpu.schedules.operators.top_k import lower_top_k

# Rows are computed and kept in memory whether they count or not.
MAX_ROWS = 1 << 22


def suppression_workload(
    boxes: tuple[int, ...] | None,
    scores: tuple[int, ...] | None,
    limits: Sequence[np.ndarray[Any, Any] | None],
    center_point_box: bool,
) -> NonMaxSuppressionWorkload:
    """Return what a NonMaxSuppression node computes.

    Parameters
    ----------
    boxes, scores : tuple of int or None
        Their static shapes; None if unknown.
    limits : sequence of array or None
        Boxes per class, overlap and score threshold; None for omitted ones.

    Raises
    ------
    ValueError
        If shapes or limits are none the operator has.
    """
    if boxes is None or scores is None:
        raise ValueError("the number of its boxes depends on the data")
    fits = len(boxes) == len(scores) == 3 and boxes[2] == 4
    if not fits or (boxes[0], boxes[1]) != (scores[0], scores[2]):
        raise ValueError(f"its boxes {list(boxes)} and scores {list(scores)} do not fit")
    most, overlap, score = (None if limit is None else limit.item() for limit in limits)
    if overlap is not None and not 0 <= overlap <= 1:
        raise ValueError(f"its iou_threshold {overlap:g} is not between 0 and 1")
    batch, classes, count = scores
    workload = NonMaxSuppressionWorkload(
        batch,
        classes,
        count,
        max(0, int(most or 0)),
        float(overlap or 0),
        score,
        center_point_box,
    )
    if workload.rows > MAX_ROWS:
        raise ValueError(
            f"it may select {workload.rows} rows, at most {MAX_ROWS} are supported; lower its "
            "max_output_boxes_per_class"
        )
    return workload


def non_max_suppression(node: Node) -> relax.Expr:
    """NonMaxSuppression with the outputs ``(rows, 3)`` and, our own, ``(1,)``: rows that count."""
    boxes, scores = node.inputs[:2]
    assert boxes is not None
    assert scores is not None
    if {dtype_of(boxes), dtype_of(scores)} != {"float32"}:
        raise ValueError("only float32 boxes and scores are supported")
    limits = [node.constant(index) for index in (2, 3, 4)]
    center = bool(node.attrs.get("center_point_box", 0))
    workload = suppression_workload(node.shape(0), node.shape(1), limits, center)
    types = [relax.TensorType((workload.rows, 3), "int64"), relax.TensorType((1,), "int64")]
    kernel = lower_non_max_suppression(workload)
    return call_kernel(node, "non_max_suppression", kernel, [boxes, scores], types)


def top_k(node: Node) -> relax.Expr:
    """TopK of float32 with a constant k; sorted whether asked for or not."""
    data, wanted = node.inputs[0], node.constant(1)
    assert data is not None
    assert wanted is not None
    if dtype_of(data) != "float32":
        raise ValueError("only float32 data is supported")
    shape, k = node.shape(), int(wanted.item())
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    if not 0 < k <= shape[axis]:
        raise ValueError(f"k is {k}, the axis has {shape[axis]} elements")
    rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    kernel = lower_top_k(rows, k, largest=bool(node.attrs.get("largest", 1)))
    types = [relax.TensorType((rows[0], k, rows[2]), dtype) for dtype in ("float32", "int64")]
    flat = node.emit(relax.op.reshape(data, rows))
    found = node.bb.emit(call_kernel(node, "top_k", kernel, [flat], types))
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
