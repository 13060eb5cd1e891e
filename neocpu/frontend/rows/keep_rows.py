"""Operators that compute rows independently, also invalid ones, which are cut off later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from neocpu.frontend.rows.row_graph import (
    ALONG,
    FIXED,
    MIXED,
    PARAMETERS,
    RowGraph,
    Rule,
    Step,
    one_count,
    refuse_if,
)
from neocpu.frontend.rows.row_value import Count, Extent, RowError, Value
from neocpu.ir.row_analysis.independence import DependentRowsError, carry
from neocpu.ir.row_analysis.onnx_call import OnnxCall
from neocpu.ir.row_analysis.table import ONNX_RULES


def independent(step: Step) -> Sequence[Value]:
    """Operators of the table, if they do not work along the axis of the rows."""
    bounded = [value for value in step.operands if value is not None and value.axis is not None]
    if not bounded:
        return step.same()
    rows = one_count(bounded)
    bound = min(value.shape[value.axis or 0] for value in bounded)
    read = [None if value is None else _cut(step, value, bound) for value in step.operands]
    call = OnnxCall(
        inputs=tuple(None if value is None else value.shape for value in read),
        op_type=step.node.op_type,
        attributes=step.attributes,
        constant=step.array,
    )
    axes = {i: v.axis for i, v in enumerate(read) if v is not None and v.axis is not None}
    try:
        found = carry(call.inputs, axes, ONNX_RULES[call.op_type](call))
    except DependentRowsError as error:
        raise RowError(
            f"it {error.described(rows='rows', row='row', axis='axis of the rows')}"
        ) from None
    refuse_if(found.required, FIXED)
    made = step.same(read)
    results = found.of_results(len(made))
    return [
        value.with_rows(axis, rows) if value.name else value
        for value, axis in zip(made, results, strict=False)
    ]


def _cut(step: Step, value: Value, bound: int) -> Value:
    """Drop rows beyond the bound of another tensor with as many rows."""
    if value.axis is None or value.shape[value.axis] == bound:
        return value
    return step.graph.cut(value, 0, bound, value.axis).like(value)


def resized(step: Step) -> Sequence[Value]:
    """Resize along other axes than the rows; the sizes may contain the count."""
    data, sizes = step.operand(0), step.optional(3)
    refuse_if(data.axis != 0, ALONG)
    operands = list(step.operands)
    if sizes is not None:
        first, *others = step.contents(3)
        refuse_if(step.attribute("axes", None) is not None, PARAMETERS)
        refuse_if(first != data.count or not all(each.known for each in others), ALONG)
        extents = [data.shape[0], *(each.constant for each in others)]
        operands[3] = step.graph.integers(*extents)
    elif (scales := step.array(2)) is None or scales[0] != 1:
        raise RowError(ALONG)
    return [step.same(operands)[0].with_rows(0, data.rows)]


def gemm(step: Step) -> Sequence[Value]:
    """Gemm; its bias is a parameter."""
    bias = step.optional(2)
    refuse_if(bias is not None and bias.axis is not None, "its bias depends on the selected rows")
    return independent(step)


def regions(step: Step) -> Sequence[Value]:
    """RoiAlign with one region for each box; those of invalid boxes are zeros."""
    data, boxes, places = (step.operand(i) for i in range(3))
    refuse_if(data.axis is not None, "its images depend on the selected rows")
    if boxes.axis is None and places.axis is None:
        return step.same()
    rows = one_count([boxes, places])
    if boxes.axis != 0 or places.axis != 0 or rows is None:
        raise RowError(MIXED if boxes.axis == 0 or places.axis == 0 else FIXED)
    bound = min(boxes.shape[0], places.shape[0])
    boxes, places = (_cut(step, value, bound) for value in (boxes, places))
    count = step.graph.counted(rows)
    kept = {
        name: value
        for name, value in step.attributes.items()
        if name != "mode" or value not in (b"avg", "avg")
    }
    bins = [int(step.attribute(f"output_{side}", 1)) for side in ("height", "width")]
    output = (step.node.output[0], data.kind, (bound, data.shape[1], *bins))
    (made,) = step.graph.emit_ours("RoiAlign", [data, boxes, places, count], [output], kept)
    return [made.with_rows(0, rows)]


def where(step: Step) -> Sequence[Value]:
    """`Where`; a single boolean may select between tensors of different numbers of rows."""
    condition, first, second = (step.operand(i) for i in range(3))
    one = condition.size == 1 and condition.rank <= 1 and condition.axis is None
    if not one or first.rank != second.rank or first.extents == second.extents:
        return independent(step)
    if any(other.axis is None and other.size == 1 for other in (first, second)):
        return independent(step)
    pairs = ((first, second), (second, first))
    if any(a.axis is None and b.axis is not None and a.shape[b.axis] == 1 for a, b in pairs):
        raise RowError("whether its one row is broadcast or is the whole result is unknown")
    return [chosen(step.graph, condition, first, second, step.node.output[0])]


def chosen(graph: RowGraph, condition: Value, first: Value, second: Value, name: str) -> Value:
    """Return ``first`` if a boolean is true, else ``second``, with its number of rows."""
    if first.rank != second.rank or first.kind != second.kind:
        raise RowError("its branches make tensors of different ranks or types")
    if condition.rank:
        condition = graph.op("Reshape", condition, graph.integers())
    pairs = list(zip(first.extents, second.extents, strict=True))
    axes = [i for i, (one, other) in enumerate(pairs) if one != other or not one.known]
    if not axes:
        return graph.emit("Where", [condition, first, second], outputs=[name])[0]
    refuse_if(len(axes) > 1, "its branches differ along several axes")
    (axis,) = axes
    rows = _chosen_extent(graph, condition, *pairs[axis])
    if pairs[axis][0] == Extent(0):
        made = graph.emit("Identity", [second], outputs=[name])[0]
    elif pairs[axis][1] == Extent(0):
        made = graph.emit("Identity", [first], outputs=[name])[0]
    else:
        bound = max(first.shape[axis], second.shape[axis])
        whole = (_filled_up(graph, each, axis, bound) for each in (first, second))
        made = graph.emit("Where", [condition, *whole], outputs=[name])[0]
    return made.with_rows(axis, rows)


def _chosen_extent(graph: RowGraph, condition: Value, first: Extent, second: Extent) -> Extent:
    if first == second:
        return first
    found = graph.op("Where", condition, graph.counted(first), graph.counted(second))
    return Extent.of(Count(found.name, max(first.most, second.most)))


def _filled_up(graph: RowGraph, value: Value, axis: int, bound: int) -> Value:
    missing = bound - value.shape[axis]
    if not missing:
        return value
    shape = [*value.shape[:axis], missing, *value.shape[axis + 1 :]]
    zeros = graph.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(value.kind)))
    return graph.op("Concat", value, zeros, axis=axis)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ONNX_RULES, independent),
    "Gemm": gemm,
    "Resize": resized,
    "RoiAlign": regions,
    "Where": where,
}
