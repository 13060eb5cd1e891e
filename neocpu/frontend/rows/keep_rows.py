"""Operators that compute rows independently: each row of the result depends on the same row.

Invalid rows are computed as well, and cut off later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import FIXED, MIXED, Rule, Step, one_count
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
    if found.required:
        raise RowError(FIXED)
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
    return step.graph.cut(value, 0, bound, value.axis).with_rows(value.axis, value.rows)


def resized(step: Step) -> Sequence[Value]:
    """Resize along other axes than the rows; the sizes may contain the count."""
    data, sizes = step.operand(0), step.optional(3)
    if data.axis != 0:
        raise RowError("it works along the rows")
    operands = list(step.operands)
    if sizes is not None:
        if sizes.contents is None or step.attribute("axes", None) is not None:
            raise RowError("its parameters depend on the selected rows")
        wanted = [data.count, *sizes.contents[1:]]
        if sizes.contents[0] != data.count or any(not each.known for each in wanted[1:]):
            raise RowError("it works along the rows")
        extents = [data.shape[0], *(each.constant for each in wanted[1:])]
        operands[3] = step.graph.integers(*extents)
    elif (scales := step.array(2)) is None or scales[0] != 1:
        raise RowError("it works along the rows")
    return [step.same(operands)[0].with_rows(0, data.rows)]


def gemm(step: Step) -> Sequence[Value]:
    """Gemm; its bias is a parameter."""
    bias = step.optional(2)
    if bias is not None and bias.axis is not None:
        raise RowError("its bias depends on the selected rows")
    return independent(step)


def regions(step: Step) -> Sequence[Value]:
    """RoiAlign with one region for each box; those of invalid boxes are zeros."""
    data, boxes, places = (step.operand(i) for i in range(3))
    if data.axis is not None:
        raise RowError("its images depend on the selected rows")
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


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ONNX_RULES, independent),
    "Gemm": gemm,
    "Resize": resized,
    "RoiAlign": regions,
}
