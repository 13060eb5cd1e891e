"""Operators along the rows: neutral elements replace those of invalid rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper

from neocpu.frontend.rows.keep_rows import independent
from neocpu.frontend.rows.row_graph import ALONG, TWO_AXES, RowGraph, Rule, Step, refuse_if
from neocpu.frontend.rows.row_value import Extent, RowError, Value

_LEAST: float = -np.inf
_MOST: float = np.inf


def counting(graph: RowGraph, value: Value) -> Value:
    """Return a mask of the valid elements, in a shape that broadcasts."""
    assert value.axis is not None
    after = value.rank - 1 - value.axis
    bound, rows = value.shape[value.axis], value.count

    def make() -> Value:
        places = graph.constant(np.arange(bound).reshape(-1, *(1,) * after))
        return graph.op("Less", places, graph.counted(rows))

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
    return graph.op("Where", counting(graph, value), value, read)


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
    divisor = graph.op("Cast", graph.op("Reshape", number, graph.integers()), to=data.kind)
    return step.last("Div", total, divisor)


def argument(filler: float) -> Rule:
    """Return the rule of ArgMax or ArgMin; of equal elements, the first is a valid one."""

    def rule(step: Step) -> Sequence[Value]:
        data = step.operand(0)
        if step.axis(0, data.rank) != data.axis:
            return independent(step)
        refuse_if(step.attribute("select_last_index", 0), ALONG)
        return step.same([masked(step.graph, data, filler)])

    return rule


def softmax(step: Step) -> Sequence[Value]:
    """Softmax and LogSoftmax, also along the rows."""
    data = step.operand(0)
    if step.axis(-1, data.rank) != data.axis:
        return independent(step)
    made = step.same([masked(step.graph, data, _LEAST)])[0]
    return [made.like(data)]


def cumulative(step: Step) -> Sequence[Value]:
    """CumSum; backwards, invalid elements count as zero."""
    data, axis = step.only_first_bounded(), step.array(1)
    if axis is None:
        raise RowError("its axis is not a constant")
    backwards = step.attribute("reverse", 0) and int(axis.item()) % data.rank == data.axis
    inputs = [masked(step.graph, data, 0) if backwards else data, step.operands[1]]
    return [step.same(inputs)[0].like(data)]


def top_k(step: Step) -> Sequence[Value]:
    """TopK; if it asks for more rows than there are, it selects all."""
    data, wanted = step.operand(0), step.contents(1, "how many it takes depends on the data")
    axis = step.axis(-1, data.rank)
    if axis != data.axis and wanted[0].known:
        return independent(step)
    refuse_if(data.axis not in (None, axis), TWO_AXES)
    graph, (asked,) = step.graph, wanted
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
    **{f"Reduce{kind}": reduction(0) for kind in "L1 L2 LogSum Mean Sum SumSquare".split()},
    "ArgMax": argument(_LEAST),
    "ArgMin": argument(_MOST),
    "CumSum": cumulative,
    "LogSoftmax": softmax,
    "ReduceLogSumExp": reduction(_LEAST),
    "ReduceMax": reduction(_LEAST),
    "ReduceMin": reduction(_MOST),
    "ReduceProd": reduction(1),
    "Softmax": softmax,
    "TopK": top_k,
}
