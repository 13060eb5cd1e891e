"""Operators on padded rows, by our own kernels that take the number of valid rows.

`neocpu.frontend.rows` writes these operators; ONNX does not have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_sampling import aligned_regions, numbers
from neocpu.frontend.converters.node import Node, call_kernel, dtype_of
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.indexing.resized_peaks import (
    LONGEST,
    PeaksWorkload,
    lower_resized_peaks,
)
from neocpu.schedules.operators.ranking.compact import lower_compact
from neocpu.schedules.operators.ranking.non_max_suppression import (
    NonMaxSuppressionWorkload,
    lower_non_max_suppression,
)
from neocpu.schedules.operators.ranking.top_k import lower_top_k

# All rows are computed and kept in memory, valid or not.
MAX_ROWS = 1 << 22


def suppression_workload(
    boxes: tuple[int, ...] | None,
    scores: tuple[int, ...] | None,
    limits: Sequence[np.ndarray[Any, Any] | None],
    center_point_box: bool,
    *,
    counted: bool = False,
) -> NonMaxSuppressionWorkload:
    """Return the workload of a NonMaxSuppression node.

    Parameters
    ----------
    boxes, scores : tuple of int or None
        The static shapes; None if unknown.
    limits : sequence of array or None
        The limits: boxes per class, overlap and score threshold; None for omitted ones.
    counted : bool
        Whether the kernel takes the number of valid boxes.

    Raises
    ------
    ValueError
        The operator does not allow these shapes or limits.
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
        batch=batch,
        classes=classes,
        boxes=count,
        max_output=max(0, int(most or 0)),
        iou_threshold=float(overlap or 0),
        score_threshold=score,
        center_point_box=center_point_box,
        counted=counted,
    )
    if workload.rows > MAX_ROWS:
        raise ValueError(
            f"it may select {workload.rows} rows, at most {MAX_ROWS} are supported; lower its "
            "max_output_boxes_per_class"
        )
    return workload


def non_max_suppression(node: Node) -> relax.Expr:
    """NonMaxSuppression with the outputs ``(rows, 3)`` and ``(1,)``, the number of valid rows.

    The optional sixth input is the number of valid boxes.
    """
    boxes, scores, counted = node.inputs[0], node.inputs[1], node.optional(5)
    if {dtype_of(boxes), dtype_of(scores)} != {"float32"}:
        raise ValueError("only float32 boxes and scores are supported")
    limits = [node.constant(index) for index in (2, 3, 4)]
    center = bool(node.attrs.get("center_point_box", 0))
    workload = suppression_workload(
        node.shape(0), node.shape(1), limits, center, counted=counted is not None
    )
    types = [relax.TensorType((workload.rows, 3), "int64"), relax.TensorType((1,), "int64")]
    kernel = lower_non_max_suppression(workload)
    if counted is not None:
        return call_kernel(node, "non_max_suppression", kernel, [boxes, scores, counted], types)
    batch_rows = KernelRows(
        repr(replace(workload, batch=1)),
        [([0, 0], [0, 0])],
        selects=(workload.classes, workload.boxes),
    )
    return call_kernel(node, "non_max_suppression", kernel, [boxes, scores], types, batch_rows)


def non_zero(node: Node) -> relax.Expr:
    """NonZero of booleans with the outputs ``(rank, elements)`` and ``(1,)``."""
    shape = node.shape()
    count = math.prod(shape)
    types = [relax.TensorType((len(shape), count), "int64"), relax.TensorType((1,), "int64")]
    return call_kernel(node, "non_zero", lower_compact(shape), [node.inputs[0]], types)


def top_k(node: Node) -> relax.Expr:
    """TopK of at most ``most`` elements; the second input is the number of valid elements."""
    data, counted = node.inputs[:2]
    if dtype_of(data) != "float32":
        raise ValueError("only float32 data is supported")
    shape, most = node.shape(), int(node.attrs["most"])
    axis = int(node.attrs["axis"])
    rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    largest = bool(node.attrs["largest"])
    kernel = lower_top_k(rows, most, largest=largest, counted=True)
    types = [relax.TensorType((rows[0], most, rows[2]), dtype) for dtype in ("float32", "int64")]
    flat = node.emit(relax.op.reshape(data, rows))
    found = node.bb.emit(call_kernel(node, "top_k", kernel, [flat, counted], types))
    result = (*shape[:axis], most, *shape[axis + 1 :])
    return relax.Tuple(
        [node.emit(relax.op.reshape(relax.TupleGetItem(found, i), result)) for i in range(2)]
    )


def roi_align(node: Node) -> relax.Expr:
    """RoiAlign; the fourth input is the number of valid regions, and the others become zeros."""
    return aligned_regions(node, [node.inputs[3]])


def resized_peaks(node: Node) -> relax.Expr:
    """Return values and positions of the peaks of maps, each resized to its row's extents."""
    data, heights, widths, counted = node.inputs[:4]
    if {dtype_of(data), dtype_of(heights), dtype_of(widths)} != {"float32"}:
        raise ValueError("only float32 maps and sizes are supported")
    rows, maps, height, width = node.shape()
    workload = PeaksWorkload(rows, maps, height, width, float(node.attrs["cubic"]))
    sides = [
        node.emit(relax.op.astype(relax.op.clip(numbers(node, side, 1.0), 1, LONGEST), "int32"))
        for side in (heights, widths)
    ]
    found = rows, maps
    types = [relax.TensorType(found, "float32"), relax.TensorType((2, *found), "int64")]
    args = [data, *sides, counted]
    return call_kernel(node, "resized_peaks", lower_resized_peaks(workload), args, types)


ROW_CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "ResizedPeaks": resized_peaks,
    "RoiAlign": roi_align,
    "TopK": top_k,
}
