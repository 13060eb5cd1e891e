"""Our own operators, which ONNX does not have.

Loops that the runtime repeats (`control_flow.loop_nodes`), pictures of bytes that become a model's
input (`processing`), and operators on padded rows (`rows`) that take the number of valid rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from neocpu.frontend.control_flow import loop_nodes
from neocpu.frontend.converters.convert_axis import first_elements
from neocpu.frontend.converters.convert_sampling import aligned_regions, numbers
from neocpu.frontend.converters.node import Converters, Node, const, dtype_of, static_shape
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.indexing.resized_peaks import (
    LONGEST,
    PeaksWorkload,
    lower_resized_peaks,
)
from neocpu.schedules.operators.pictures.prepare_picture import (
    PictureWorkload,
    lanes_of,
    lower_prepare_picture,
)
from neocpu.schedules.operators.ranking.compact import lower_compact
from neocpu.schedules.operators.ranking.non_max_suppression import (
    NonMaxSuppressionWorkload,
    lower_non_max_suppression,
)
from neocpu.schedules.recurrent.counted_loop import (
    Tensor,
    lower_loop_begin,
    lower_loop_element,
    lower_loop_end,
    lower_loop_outer,
)

MAX_ROWS = 1 << 22
"""The most rows of a suppression: all are computed and kept in memory, valid or not."""


def _loop_begin(node: Node) -> relax.Expr:
    """LoopBegin: the number of the step and the states, as `control_flow.loop_nodes` defines it."""
    tensors, states = _tensors(node), int(node.attrs["states"])
    counted = len(tensors) > states
    kernel = lower_loop_begin(node.string("loop", ""), tensors[:states], counted=counted)
    results = [((), "int64"), *_kinds(tensors[:states])]
    return node.call("loop_begin", kernel, _given(node), results)


def _loop_end(node: Node) -> relax.Expr:
    tensors = _tensors(node)[1:]  # the first one is the number of the step
    states, limit = int(node.attrs["states"]), int(node.attrs["limit"])
    ways = node.string("backward", "")
    rows, condition = tensors[states:][: len(ways)], tensors[states + len(ways) :]
    kernel = lower_loop_end(
        name=node.string("loop", ""),
        limit=limit,
        states=tensors[:states],
        rows=[(row, way == "1") for row, way in zip(rows, ways, strict=True)],
        condition=condition[0] if condition else None,
    )
    stacked = [Tensor(row.dtype, (limit, *row.shape)) for row in rows]
    results = _kinds([*tensors[:states], *stacked])
    return node.call("loop_end", kernel, _given(node), results)


def _loop_element(node: Node) -> relax.Expr:
    whole, _ = _tensors(node)
    axis, limit = int(node.attrs["axis"]), int(node.attrs["limit"])
    kernel = lower_loop_element(whole, axis, limit, backward=bool(node.attrs["backward"]))
    element = Tensor(whole.dtype, (*whole.shape[:axis], *whole.shape[axis + 1 :]))
    return node.call("loop_element", kernel, _given(node), _kinds([element]))


def _loop_outer(node: Node) -> relax.Expr:
    """LoopOuter: an outer value, hidden from passes that would fuse its computation into steps."""
    (tensor,) = _tensors(node)
    return node.call("loop_outer", lower_loop_outer(tensor), _given(node), _kinds([tensor]))


def _given(node: Node) -> list[relax.Expr]:
    return [each for each in node.inputs if each is not None]


def _tensors(node: Node) -> list[Tensor]:
    return [Tensor(dtype_of(each), static_shape(each)) for each in _given(node)]


def _kinds(tensors: list[Tensor]) -> list[tuple[Sequence[int], str]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _prepare_picture(node: Node) -> relax.Expr:
    """Resize, normalise and lay out pictures, as `neocpu.frontend.processing` defines it."""
    first_row, row_weights, first_column, column_weights, factors, offsets = map(
        node.required, range(1, 7)
    )
    planar, shape = bool(node.attrs["planar"]), node.shape()
    images, (height, width) = shape[0], shape[2:] if planar else shape[1:3]
    colours = shape[1] if planar else shape[3]
    reversed = bool(node.attrs["reversed"])
    taps = (row_weights.shape[1], column_weights.shape[1])
    columns = (int(first_column.min()), int(first_column.max()) + taps[1])
    top, left, rows, across = node.ints("region", ())
    size = node.ints("size", ())
    workload = PictureWorkload(
        images=images,
        height=height,
        width=width,
        colours=colours,
        planar=planar,
        reversed=reversed,
        size=(size[0], size[1]),
        planes=bool(node.attrs["planes"]),
        region=(top, left, rows, across),
        columns=columns,
        taps=taps,
        border=float(node.attrs["border"]),
    )
    places = ((first_column - columns[0]) * workload.interleaved).astype(np.int32)
    lanes = lanes_of(colours)
    scales = []
    for values in (factors, offsets):
        padded = np.zeros(lanes, np.float32)
        padded[:colours] = values[::-1] if reversed else values
        scales.append(padded)
    arrays = (first_row, row_weights, places, column_weights, *scales)
    args = [node.data, *(const(np.asarray(array)) for array in arrays)]
    results = [(workload.output, "float32")]
    batch_rows = KernelRows(
        repr(replace(workload, images=1)), [([0, *(None for _ in arrays)], [0])]
    )
    kernel = lower_prepare_picture(workload)
    return node.call("prepare_picture", kernel, args, results, batch_rows)


def suppression_workload(
    boxes: tuple[int, ...],
    scores: tuple[int, ...],
    limits: Sequence[np.ndarray[Any, Any] | None],
    center_point_box: bool,
    *,
    counted: bool = False,
) -> NonMaxSuppressionWorkload:
    """Return the workload of a NonMaxSuppression of boxes and scores of these static shapes.

    The limits are boxes per class, overlap and score threshold, None if omitted; if ``counted``,
    the kernel takes the number of valid boxes. Raises a `ValueError` if the operator does not allow
    them.
    """
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


def _non_max_suppression(node: Node) -> relax.Expr:
    """NonMaxSuppression: ``(rows, 3)``, and their valid number ``(1,)``; input 5 counts boxes."""
    boxes, scores, counted = node.data, node.inputs[1], node.optional(5)
    if {dtype_of(boxes), dtype_of(scores)} != {"float32"}:
        raise ValueError("only float32 boxes and scores are supported")
    limits = [node.constant(index) for index in (2, 3, 4)]
    center = node.flag("center_point_box")
    workload = suppression_workload(
        node.shape(0), node.shape(1), limits, center, counted=counted is not None
    )
    results = [((workload.rows, 3), "int64"), ((1,), "int64")]
    kernel = lower_non_max_suppression(workload)
    if counted is not None:
        return node.call("non_max_suppression", kernel, [boxes, scores, counted], results)
    batch_rows = KernelRows(
        repr(replace(workload, batch=1)),
        [([0, 0], [0, 0])],
        selects=(workload.classes, workload.boxes),
    )
    return node.call("non_max_suppression", kernel, [boxes, scores], results, batch_rows)


def _non_zero(node: Node) -> relax.Expr:
    shape = node.shape()
    results = [((len(shape), math.prod(shape)), "int64"), ((1,), "int64")]
    return node.call("non_zero", lower_compact(shape), [node.data], results)


def _top_k(node: Node) -> relax.Expr:
    """TopK of at most ``most`` elements; the second input is the number of valid elements."""
    axis, most, largest = (int(node.attrs[name]) for name in ("axis", "most", "largest"))
    return first_elements(node, axis, most, largest=bool(largest), count=[node.inputs[1]])


def _resized_peaks(node: Node) -> relax.Expr:
    """Return values and positions of the peaks of maps, each resized to its row's extents."""
    data, heights, widths, counted = node.inputs[:4]
    if {dtype_of(data), dtype_of(heights), dtype_of(widths)} != {"float32"}:
        raise ValueError("only float32 maps and sizes are supported")
    rows, maps, height, width = node.shape()
    workload = PeaksWorkload(rows, maps, height, width, float(node.attrs["cubic"]))
    sides = [
        node.op.astype(relax.op.clip(numbers(node, side, 1.0), 1, LONGEST), "int32")
        for side in (heights, widths)
    ]
    results = [((rows, maps), "float32"), ((2, rows, maps), "int64")]
    args = [data, *sides, counted]
    return node.call("resized_peaks", lower_resized_peaks(workload), args, results)


ROW_CONVERTERS: Converters = {
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "ResizedPeaks": _resized_peaks,
    # The fourth input is the number of valid regions; the others become zeros.
    "RoiAlign": lambda node: aligned_regions(node, [node.inputs[3]]),
    "TopK": _top_k,
}

OWN_CONVERTERS: Converters = {
    loop_nodes.BEGIN: _loop_begin,
    loop_nodes.ELEMENT: _loop_element,
    loop_nodes.END: _loop_end,
    loop_nodes.OUTER: _loop_outer,
    "PreparePicture": _prepare_picture,
}
