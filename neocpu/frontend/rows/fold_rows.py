"""Operators along the rows: neutral elements replace those of invalid rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper

from neocpu.frontend.rows.extent import Extent
from neocpu.frontend.rows.keep_rows import independent
from neocpu.frontend.rows.row_graph import RowGraph
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import Rule, Step

_LEAST: float = -np.inf
_MOST: float = np.inf


def counting(graph: RowGraph, value: Value) -> Value:
    """Return a mask of the valid elements, in a shape that broadcasts."""
    assert value.axis is not None
    after = value.rank - 1 - value.axis
    bound, rows = value.shape[value.axis], value.count

    def make() -> Value:
        places = graph.constant(np.arange(bound).reshape(-1, *(1,) * after))
        return graph.emit_one("Less", places, graph.counted(rows))

    return graph.remember(("counting", bound, rows, after), make)


def masked(graph: RowGraph, value: Value, filler: float) -> Value:
    """Return a tensor with ``filler`` in place of invalid elements; all are valid then."""
    if value.axis is None:
        return value
    kind = helper.tensor_dtype_to_np_dtype(value.kind)
    if np.isinf(filler) and kind.kind in "iu":
        limits = np.iinfo(kind)
        filler = limits.min if filler < 0 else limits.max
    elif np.isinf(filler) and kind.kind == "b":
        filler = filler > 0
    read = graph.constant(np.array(filler, kind))
    return graph.emit_one("Where", counting(graph, value), value, read)


def reduction(filler: float) -> Rule:
    """Return the rule of a reduction, along the rows or along other axes."""

    def rule(step: Step) -> Sequence[Value]:
        data = step.only_first_bounded()
        axes = step.array(1)
        chosen = list(range(data.rank))
        if axes is not None and axes.size:
            chosen = [int(axis) % data.rank for axis in axes.reshape(-1)]
        elif step.attribute("noop_with_empty_axes", 0):
            return independent(step)
        if data.axis not in chosen:
            return independent(step)
        inputs = [masked(step.graph, data, filler), *step.operands[1:]]
        if step.node.op_type == "ReduceMean":
            return [_mean(step, inputs, chosen)]
        return step.same(inputs)

    return rule


def _mean(step: Step, inputs: Sequence[Value | None], chosen: Sequence[int]) -> Value:
    """Return the sum of the valid elements divided by their number."""
    data, graph = step.operand(0), step.graph
    total = graph.emit("ReduceSum", inputs, step.attributes)[0]
    others = [data.shape[axis] for axis in chosen if axis != data.axis]
    number = graph.counted(data.count.times(int(np.prod(others, dtype=np.int64))))
    divisor = graph.emit_one(
        "Cast", graph.emit_one("Reshape", number, graph.integers()), to=data.kind
    )
    return step.last("Div", total, divisor)


def argument(filler: float) -> Rule:
    """Return the rule of ArgMax or ArgMin; of equal elements, the first is a valid one."""

    def rule(step: Step) -> Sequence[Value]:
        data = step.operand(0)
        if step.axis(0, data.rank) != data.axis:
            return independent(step)
        if step.attribute("select_last_index", 0):
            raise RowError("it works along the rows")
        return step.same([masked(step.graph, data, filler)])

    return rule


def softmax(step: Step) -> Sequence[Value]:
    """Softmax and LogSoftmax, also along the rows."""
    data = step.operand(0)
    if step.axis(-1, data.rank) != data.axis:
        return independent(step)
    made = step.same([masked(step.graph, data, _LEAST)])[0]
    return [made.with_rows(data.axis, data.rows)]


def cumulative(step: Step) -> Sequence[Value]:
    """CumSum; backwards, invalid elements count as zero."""
    data, axis = step.only_first_bounded(), step.array(1)
    if axis is None:
        raise RowError("its axis is not a constant")
    backwards = step.attribute("reverse", 0) and int(axis.item()) % data.rank == data.axis
    inputs = [masked(step.graph, data, 0) if backwards else data, step.operands[1]]
    return [step.same(inputs)[0].with_rows(data.axis, data.rows)]


def top_k(step: Step) -> Sequence[Value]:
    """TopK; if it asks for more rows than there are, it selects all."""
    data, wanted = step.operand(0), step.operand(1)
    axis = step.axis(-1, data.rank)
    if wanted.contents is None:
        raise RowError("how many it takes depends on the data")
    if axis != data.axis and wanted.known is not None:
        return independent(step)
    if data.axis not in (None, axis):
        raise RowError("its result has variable numbers of rows along two axes")
    graph, (asked,) = step.graph, wanted.contents
    extent = data.extents[axis]
    taken = graph.smaller(asked, extent)
    bound = min(asked.most, data.shape[axis])
    if bound < 1:
        bound, taken = 1, Extent(0)
    names = [name or graph.name("unused") for name in (*step.node.output, "", "")[:2]]
    shape = (*data.shape[:axis], bound, *data.shape[axis + 1 :])
    outputs = [(names[0], data.kind, shape), (names[1], TensorProto.INT64, shape)]
    attributes = {"axis": axis, "largest": int(step.attribute("largest", 1)), "most": bound}
    found = graph.emit_ours("TopK", [data, graph.counted(extent)], outputs, attributes)
    return [each.with_rows(axis, taken) for each in found]


RULES: Mapping[str, Rule] = {
    "ArgMax": argument(_LEAST),
    "ArgMin": argument(_MOST),
    "CumSum": cumulative,
    "LogSoftmax": softmax,
    "ReduceL1": reduction(0),
    "ReduceL2": reduction(0),
    "ReduceLogSum": reduction(0),
    "ReduceLogSumExp": reduction(_LEAST),
    "ReduceMax": reduction(_LEAST),
    "ReduceMean": reduction(0),
    "ReduceMin": reduction(_MOST),
    "ReduceProd": reduction(1),
    "ReduceSum": reduction(0),
    "ReduceSumSquare": reduction(0),
    "Softmax": softmax,
    "TopK": top_k,
}
