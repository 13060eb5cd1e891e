"""Operators whose number of result rows depends on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper

from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rows.fold_rows import masked
from neocpu.frontend.rows.row_graph import (
    FIXED,
    MERGED,
    TWO_AXES,
    Array,
    RowGraph,
    Rule,
    Step,
    one_count,
    refuse_if,
)
from neocpu.frontend.rows.row_value import Count, Extent, RowError, Value, product

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
    refuse_if(data.rank == 0, "its data has no dimensions")
    if data.size > MAX_SEARCHED:
        raise RowError(f"it may find {data.size} elements, at most {MAX_SEARCHED} are supported")
    everything = masked(graph, data, 0)
    if data.kind != TensorProto.BOOL:
        everything = graph.op("Cast", everything, to=TensorProto.BOOL)
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
            raise RowError(MERGED)
        rows = product(data.extents)
        flat = graph.op("Reshape", data, graph.integers(data.size))
        data, axis = flat.with_rows(None if data.axis is None else 0, rows), 0
    axis = int(axis) % data.rank
    refuse_if(data.axis not in (None, axis), TWO_AXES)
    if condition.axis is not None and data.axis is not None:
        one_count([data, condition])
    refuse_if(condition.shape[0] > data.shape[axis], "its condition is longer than its axis")
    refuse_if(data.axis is not None and condition.axis is None, FIXED)
    places = places_of(graph, condition, graph.name("places"))
    row = graph.op("Reshape", places, graph.integers(condition.shape[0]))
    return [step.last("Gather", data, row, axis=axis).with_rows(axis, places.rows)]


def suppression(step: Step) -> Sequence[Value]:
    """NonMaxSuppression; its boxes may have invalid rows."""
    # This import needs TVM, and only models with such a node should wait for it.
    from neocpu.frontend.converters.convert_own import suppression_workload

    boxes, scores = step.operand(0), step.operand(1)
    rows = one_count([boxes, scores])
    if boxes.axis not in (None, 1) or scores.axis not in (None, 2):
        raise RowError("it has a variable number of images or classes")
    refuse_if((boxes.axis is None) != (scores.axis is None), FIXED)
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
    """Return the most boxes per class, best first, and the count that limits them, if computed."""
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
    wanted = step.contents(0, "its shape depends on the data")
    open_axes = [i for i, each in enumerate(wanted) if not each.known or each == Extent(0)]
    refuse_if(len(open_axes) > 1, TWO_AXES)
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
    start, delta = step.operand(0), step.operand(2)
    why = "its limits depend on the data"
    (first,), (last,) = step.contents(0, why), step.contents(1, why)
    integral = start.kind in (TensorProto.INT64, TensorProto.INT32)
    refuse_if(not integral or delta.known != (1,), why)
    graph = step.graph
    rows = graph.larger(last - first, Extent(0))
    places = np.arange(max(rows.most, 1), dtype=helper.tensor_dtype_to_np_dtype(start.kind))
    base = graph.counted(first)
    if base.kind != start.kind:
        base = graph.op("Cast", base, to=start.kind)
    return [step.last("Add", graph.constant(places), base).with_rows(0, rows)]


def unique(step: Step) -> Sequence[Value]:
    """Unique of all elements, sorted or in the order of their first occurrence."""
    graph, data = step.graph, step.operand(0)
    if "axis" in step.attributes and data.rank != 1:
        raise RowError("it compares slices along an axis; only elements are supported")
    if data.kind not in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32):
        raise RowError("only float32, int32 and int64 are supported")
    flat = _flat(graph, data)
    order = _sorted(graph, flat)
    ranked = _taken(graph, flat, order)
    starts, places = _starts(graph, ranked)
    values = _taken(graph, ranked, starts)
    first = _taken(graph, order, starts)
    counts = _lengths(graph, starts, ranked.extents[0])
    # The index of each element's value, in the order of the elements.
    inverse = _taken(graph, places, _sorted(graph, order))
    if not step.attribute("sorted", 1):
        arrival = _sorted(graph, first)
        values, first, counts = (_taken(graph, each, arrival) for each in (values, first, counts))
        inverse = _taken(graph, _sorted(graph, arrival), inverse)
    return [values, first, inverse, counts][: len(step.node.output)]


def _flat(graph: RowGraph, data: Value) -> Value:
    if data.axis is not None and any(extent != 1 for extent in data.shape[: data.axis]):
        raise RowError(MERGED)
    flat = graph.op("Reshape", data, graph.integers(data.size))
    return flat.with_rows(None if data.axis is None else 0, product(data.extents))


def _taken(graph: RowGraph, data: Value, places: Value) -> Value:
    return graph.op("Gather", data, places, axis=0).like(places)


def _sorted(graph: RowGraph, data: Value) -> Value:
    """Return the positions of the elements in rising order; the sort is stable."""
    kinds = (("sorted", data.kind), ("order", TensorProto.INT64))
    outputs = [(graph.name(name), kind, data.shape) for name, kind in kinds]
    attributes = {"axis": 0, "largest": 0, "most": data.shape[0]}
    read = [data, graph.counted(data.extents[0])]
    return graph.emit_ours("TopK", read, outputs, attributes)[1].like(data)


def _starts(graph: RowGraph, ranked: Value) -> tuple[Value, Value]:
    """Return where new values begin in sorted elements, and the number of each element's value."""
    bound = ranked.shape[0]
    before = graph.constant(np.maximum(np.arange(bound) - 1, 0))
    same = graph.op("Equal", ranked, graph.op("Gather", ranked, before, axis=0))
    begins = graph.constant(np.arange(bound) == 0)
    new = graph.op("Or", graph.op("Not", same), begins)
    new = new.like(ranked)
    whole = graph.op("Cast", masked(graph, new, 0), to=TensorProto.INT64)
    total = graph.op("CumSum", whole, graph.constant(np.array(0)))
    places = graph.op("Sub", total, graph.constant(np.array(1)))
    found = places_of(graph, new, graph.name("starts"))
    starts = graph.op("Reshape", found, graph.integers(bound))
    return starts.with_rows(0, found.rows), places.like(ranked)


def _lengths(graph: RowGraph, starts: Value, total: Extent) -> Value:
    """Return the number of elements of each value, up to where the next one begins."""
    bound = starts.shape[0]
    after = graph.constant(np.minimum(np.arange(bound) + 1, bound - 1))
    following = graph.op("Gather", starts, after, axis=0)
    last = graph.op(
        "GreaterOrEqual", graph.constant(np.arange(1, bound + 1)), graph.counted(starts.count)
    )
    end = graph.op("Where", last, graph.counted(total), following)
    return graph.op("Sub", end, starts).like(starts)


RULES: Mapping[str, Rule] = {
    "Compress": compress,
    "ConstantOfShape": filled,
    "NonMaxSuppression": suppression,
    "NonZero": non_zero,
    "Range": counted_up,
    "Unique": unique,
}
