"""Operators whose number of result rows depends on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper

from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows.extent import Count, Extent, product
from neocpu.frontend.rows.fold_rows import masked
from neocpu.frontend.rows.row_graph import Array, RowGraph
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import FIXED, Rule, Step, one_count

SOURCES = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
"""Operators whose number of result rows only the data decide."""

MAX_SEARCHED = 1 << 24
"""The largest number of elements to search; memory is reserved for all of them."""


def non_zero(step: Step) -> Sequence[Value]:
    """NonZero; its result has one column for each element that may be nonzero."""
    data = step.operand(0)
    return [places_of(step.graph, data, step.node.output[0])]


def places_of(graph: RowGraph, data: Value, name: str) -> Value:
    """Return the positions of nonzero elements, ``(rank, rows)``."""
    if data.rank == 0:
        raise RowError("its data has no dimensions")
    if data.size > MAX_SEARCHED:
        raise RowError(f"it may find {data.size} elements, at most {MAX_SEARCHED} are supported")
    everything = masked(graph, data, 0)
    if data.kind != TensorProto.BOOL:
        everything = graph.emit_one("Cast", everything, to=TensorProto.BOOL)
    count = (graph.name("count"), TensorProto.INT64, (1,))
    places = (name, TensorProto.INT64, (data.rank, data.size))
    found = graph.emit_ours("NonZero", [everything], [places, count])
    total = product(data.extents)
    assert total is not None
    return found[0].with_rows(1, Extent.of(Count(count[0], total.most)))


def compress(step: Step) -> Sequence[Value]:
    """Compress: the slices along an axis for which a condition is true."""
    data, condition = step.operand(0), step.operand(1)
    graph, axis = step.graph, step.attribute("axis", None)
    if axis is None:
        if data.axis is not None and any(extent != 1 for extent in data.shape[: data.axis]):
            raise RowError("it merges rows, or splits them")
        rows = product(data.extents)
        flat = graph.emit_one("Reshape", data, graph.integers(data.size))
        data, axis = flat.with_rows(None if data.axis is None else 0, rows), 0
    axis = int(axis) % data.rank
    if data.axis not in (None, axis):
        raise RowError("its result has variable numbers of rows along two axes")
    if condition.axis is not None and data.axis is not None:
        one_count([data, condition])
    if condition.shape[0] > data.shape[axis]:
        raise RowError("its condition is longer than its axis")
    if data.axis is not None and condition.axis is None:
        raise RowError(FIXED)
    places = places_of(graph, condition, graph.name("places"))
    row = graph.emit_one("Reshape", places, graph.integers(condition.shape[0]))
    return [step.last("Gather", data, row, axis=axis).with_rows(axis, places.rows)]


def suppression(step: Step) -> Sequence[Value]:
    """NonMaxSuppression; its boxes may have invalid rows."""
    # This import needs TVM, and only models with such a node should wait for it.
    from neocpu.frontend.converters.convert_rows import suppression_workload

    boxes, scores = step.operand(0), step.operand(1)
    rows = one_count([boxes, scores])
    if boxes.axis not in (None, 1) or scores.axis not in (None, 2):
        raise RowError("it has a variable number of images or classes")
    if (boxes.axis is None) != (scores.axis is None):
        raise RowError(FIXED)
    graph = step.graph
    if rows is not None:
        bound = min(boxes.shape[1], scores.shape[2])
        boxes, scores = (
            value if value.shape[axis] == bound else graph.cut(value, 0, bound, axis)
            for value, axis in ((boxes, 1), (scores, 2))
        )
    most, limit = _most(step, scores)
    limits = [most, *(_limit(step, index) for index in (3, 4))]
    center = int(step.attribute("center_point_box", 0))
    try:
        workload = suppression_workload(boxes.shape, scores.shape, limits, bool(center))
    except ValueError as error:
        raise RowError(str(error)) from error
    name, count = step.node.output[0], graph.name("count")
    outputs = [(name, TensorProto.INT64, (workload.rows, 3)), (count, TensorProto.INT64, (1,))]
    counted = [] if rows is None else [graph.counted(rows)]
    largest = None if most is None else graph.constant(most)
    read = [boxes, scores, largest, step.optional(3), step.optional(4), *counted]
    found = graph.emit_ours("NonMaxSuppression", read, outputs, {"center_point_box": center})
    bound = workload.batch * workload.classes * workload.per_class
    selected = Extent.of(Count(count, bound))
    if limit is not None:
        selected = graph.smaller(selected, limit)
    return [found[0].with_rows(0, selected)]


def _most(step: Step, scores: Value) -> tuple[Array | None, Extent | None]:
    """Return the most boxes per class, and the count that limits them, if it is not constant.

    Boxes of one class are in the order of their scores, so a limit keeps the first ones.
    """
    value = step.optional(2)
    alone = scores.shape[:2] == (1, 1)
    if value is None or value.contents is None or value.known is not None or not alone:
        return _limit(step, 2), None
    limit = step.graph.larger(value.contents[0], Extent(0))
    return np.array([limit.most]), limit


def _limit(step: Step, index: int) -> Array | None:
    value = step.optional(index)
    if value is None:
        return None
    array = step.graph.array(value)
    if array is None:
        raise RowError(f"its limit '{step.node.input[index]}' is not a constant")
    return array


def filled(step: Step) -> Sequence[Value]:
    """ConstantOfShape; its shape may contain a number of rows that a run decides."""
    wanted = step.operand(0).contents
    if wanted is None:
        raise RowError("its shape depends on the data")
    open_axes = [i for i, each in enumerate(wanted) if not each.known or each == Extent(0)]
    if len(open_axes) > 1:
        raise RowError("its result has variable numbers of rows along two axes")
    tensor = step.attribute("value", None)
    element = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    shape = [max(each.most, 1) for each in wanted]
    attributes = {}
    if tensor is not None:
        attributes["value"] = helper.make_tensor("value", tensor.data_type, [1], element)
    made = step.last("ConstantOfShape", step.graph.integers(*shape), **attributes)
    return [made.with_rows(open_axes[0], wanted[open_axes[0]]) if open_axes else made]


def counted_up(step: Step) -> Sequence[Value]:
    """Range of integers in steps of 1."""
    start, limit, delta = (step.operand(i) for i in range(3))
    integral = start.kind in (TensorProto.INT64, TensorProto.INT32)
    if not integral or start.contents is None or limit.contents is None or delta.known != (1,):
        raise RowError("its limits depend on the data")
    first, last = start.contents[0], limit.contents[0]
    graph = step.graph
    rows = graph.larger(last - first, Extent(0))
    places = np.arange(max(rows.most, 1), dtype=helper.tensor_dtype_to_np_dtype(start.kind))
    base = graph.counted(first)
    if base.kind != start.kind:
        base = graph.emit_one("Cast", base, to=start.kind)
    return [step.last("Add", graph.constant(places), base).with_rows(0, rows)]


RULES: Mapping[str, Rule] = {
    "Compress": compress,
    "ConstantOfShape": filled,
    "NonMaxSuppression": suppression,
    "NonZero": non_zero,
    "Range": counted_up,
}
