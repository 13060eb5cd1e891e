"""Unique, written as sorting, comparison of neighbours and selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from neocpu.frontend.rows.extent import Extent, product
from neocpu.frontend.rows.fold_rows import masked
from neocpu.frontend.rows.make_rows import places_of
from neocpu.frontend.rows.row_graph import RowGraph
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import Rule, Step

_DIGIT, _DIGITS = 1 << 16, 4
"""The base and the number of digits of sorted integers; each digit is exact in float32."""
_MOST = 1 << 24
"""The most elements; indices up to there are exact in float32."""


def unique(step: Step) -> Sequence[Value]:
    """Unique of all elements, sorted or in the order of their first occurrence."""
    graph, data = step.graph, step.operand(0)
    if "axis" in step.attributes and data.rank != 1:
        raise RowError("it compares slices along an axis; only elements are supported")
    flat = _flat(graph, data)
    if flat.size > _MOST:
        raise RowError(f"it compares {flat.size} elements, at most {_MOST} are supported")
    order = _order(graph, flat)
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
        raise RowError("it merges rows, or splits them")
    flat = graph.emit_one("Reshape", data, graph.integers(data.size))
    return flat.with_rows(None if data.axis is None else 0, product(data.extents))


def _taken(graph: RowGraph, data: Value, places: Value) -> Value:
    return graph.emit_one("Gather", data, places, axis=0).with_rows(places.axis, places.rows)


def _order(graph: RowGraph, data: Value) -> Value:
    """Return the positions of the elements in the order of their values; the sort is stable."""
    if data.kind == TensorProto.FLOAT:
        return _sorted(graph, data)
    if data.kind not in (TensorProto.INT64, TensorProto.INT32):
        raise RowError("only float32, int32 and int64 are supported")
    rest, order = graph.emit_one("Cast", data, to=TensorProto.INT64), None
    base, half = (graph.constant(np.array(each)) for each in (_DIGIT, -_DIGIT // 2))
    for number in range(_DIGITS):
        digit = graph.emit_one("Mod", rest, base)
        rest = graph.emit_one("Div", graph.emit_one("Sub", rest, digit), base)
        if number == _DIGITS - 1:  # the last digit includes the sign
            shifted = graph.emit_one("Sub", digit, half)
            digit = graph.emit_one("Mod", shifted, base)
        digit = digit.with_rows(data.axis, data.rows)
        places = _sorted(graph, digit if order is None else _taken(graph, digit, order))
        order = places if order is None else _taken(graph, order, places)
    assert order is not None
    return order


def _sorted(graph: RowGraph, data: Value) -> Value:
    """Return the positions of the elements in rising order, compared as float32."""
    floats = data
    if data.kind != TensorProto.FLOAT:
        floats = graph.emit_one("Cast", data, to=TensorProto.FLOAT)
    names = graph.name("sorted"), graph.name("order")
    outputs = [(names[0], TensorProto.FLOAT, data.shape), (names[1], TensorProto.INT64, data.shape)]
    attributes = {"axis": 0, "largest": 0, "most": data.shape[0]}
    read = [floats, graph.counted(data.extents[0])]
    return graph.emit_ours("TopK", read, outputs, attributes)[1].with_rows(data.axis, data.rows)


def _starts(graph: RowGraph, ranked: Value) -> tuple[Value, Value]:
    """Return the positions where a new value begins, and the index of each element's value."""
    bound = ranked.shape[0]
    before = graph.constant(np.maximum(np.arange(bound) - 1, 0))
    same = graph.emit_one("Equal", ranked, graph.emit_one("Gather", ranked, before, axis=0))
    begins = graph.constant(np.arange(bound) == 0)
    new = graph.emit_one("Or", graph.emit_one("Not", same), begins)
    new = new.with_rows(ranked.axis, ranked.rows)
    whole = graph.emit_one("Cast", masked(graph, new, 0), to=TensorProto.INT64)
    total = graph.emit_one("CumSum", whole, graph.constant(np.array(0)))
    places = graph.emit_one("Sub", total, graph.constant(np.array(1)))
    found = places_of(graph, new, graph.name("starts"))
    starts = graph.emit_one("Reshape", found, graph.integers(bound))
    return starts.with_rows(0, found.rows), places.with_rows(ranked.axis, ranked.rows)


def _lengths(graph: RowGraph, starts: Value, total: Extent) -> Value:
    """Return the number of elements of each value, up to where the next one begins."""
    bound = starts.shape[0]
    after = graph.constant(np.minimum(np.arange(bound) + 1, bound - 1))
    following = graph.emit_one("Gather", starts, after, axis=0)
    last = graph.emit_one(
        "GreaterOrEqual", graph.constant(np.arange(1, bound + 1)), graph.counted(starts.count)
    )
    end = graph.emit_one("Where", last, graph.counted(total), following)
    return graph.emit_one("Sub", end, starts).with_rows(starts.axis, starts.rows)


RULES: Mapping[str, Rule] = {"Unique": unique}
