"""Operators that read or write at positions that rows contain, or select rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from neocpu.frontend.rows.fold_rows import counting
from neocpu.frontend.rows.keep_rows import independent
from neocpu.frontend.rows.row_graph import (
    FIXED,
    TWO_AXES,
    RowGraph,
    Rule,
    Step,
    one_count,
    refuse_if,
)
from neocpu.frontend.rows.row_value import Extent, RowError, Value


def gather(step: Step) -> Sequence[Value]:
    """Gather; its indices or its data may have invalid rows."""
    data, indices = step.operand(0), step.operand(1)
    axis = step.axis(0, data.rank)
    if data.axis != axis:
        return independent(step)
    known = step.graph.array(indices)
    if known is None or (known < 0).any():
        indices = _from_the_end(step.graph, indices, data.count)
    elif known.max(initial=0) >= data.shape[axis]:
        indices = step.graph.constant(np.minimum(known, data.shape[axis] - 1))
    made = step.same([data, indices])[0]
    return [made.with_rows(None if indices.axis is None else axis + indices.axis, indices.rows)]


def _from_the_end(graph: RowGraph, indices: Value, extents: Extent | Value) -> Value:
    """Return indices, with negative ones counted from the end of the valid rows."""
    if isinstance(extents, Extent):
        extents = graph.counted(extents)
    if extents.kind != indices.kind:
        extents = graph.op("Cast", extents, to=indices.kind)
    if indices.rank == 0:
        extents = graph.op("Reshape", extents, graph.integers())
    zero = np.array(0, helper.tensor_dtype_to_np_dtype(indices.kind))
    below = graph.op("Less", indices, graph.constant(zero))
    wrapped = graph.op("Add", indices, extents)
    found = graph.op("Where", below, wrapped, indices)
    return found.like(indices)


def _positive(step: Step, indices: Value, data: Value, depth: int, first: int = 0) -> Value:
    """Return tuples of indices, with negative ones counted from the end of the valid rows."""
    if data.axis is None or not first <= data.axis < first + depth:
        return indices
    extents = data.extents[first : first + depth]
    value = Value(name="", kind=7, shape=(depth,), contents=extents, pending=True)
    return _from_the_end(step.graph, indices, step.graph.stored(value))


def gather_nd(step: Step) -> Sequence[Value]:
    """GatherND; its tuples of indices may have invalid rows."""
    data, indices = step.operand(0), step.operand(1)
    refuse_if(step.attribute("batch_dims", 0), "it has batch_dims")
    depth = indices.shape[-1]
    refuse_if(indices.axis == indices.rank - 1, "its tuples of indices have a variable length")
    places = _positive(step, indices, data, depth)
    made = step.same([data, places])[0]
    if data.axis is not None and data.axis >= depth:
        refuse_if(indices.axis is not None, TWO_AXES)
        return [made.with_rows(data.axis - depth + indices.rank - 1, data.rows)]
    return [made.like(indices)]


def gather_elements(step: Step) -> Sequence[Value]:
    """GatherElements; its indices may have invalid rows."""
    data, indices = step.operand(0), step.operand(1)
    axis = step.axis(0, data.rank)
    if data.axis == axis:
        places = _from_the_end(step.graph, indices, data.count)
        return [step.same([data, places])[0].like(indices)]
    if indices.axis is None or indices.axis == axis:
        refuse_if(data.axis is not None, FIXED if indices.axis is None else TWO_AXES)
        return [step.same()[0].like(indices)]
    if data.axis is None:
        return [step.same()[0].like(indices)]
    rows = one_count([data, indices])
    refuse_if(data.axis != indices.axis or data.shape[data.axis] < indices.shape[data.axis], FIXED)
    return [step.same()[0].with_rows(indices.axis, rows)]


def _nowhere(graph: RowGraph, indices: Value) -> Value:
    """Return indices that write nothing for invalid rows."""
    if indices.axis is None:
        return indices
    kind = helper.tensor_dtype_to_np_dtype(indices.kind)
    far = graph.constant(np.array(np.iinfo(kind).max, kind))
    return graph.op("Where", counting(graph, indices), indices, far)


def scatter_elements(step: Step) -> Sequence[Value]:
    """ScatterElements; invalid rows write nothing."""
    data, indices, updates = (step.operand(i) for i in range(3))
    axis = step.axis(0, data.rank)
    _require_same_rows(indices, updates, indices.axis, updates.axis)
    if (rows := _whole_rows(step, data, indices, axis)) is not None:
        made = step.last("ScatterND", data, rows, updates, **_reduction(step))
        return [made.like(data)]
    if data.axis is not None and data.axis == axis:
        indices = _from_the_end(step.graph, indices, data.count)
    elif data.axis is not None and indices.axis not in (None, data.axis):
        raise RowError(TWO_AXES)
    places = _nowhere(step.graph, indices)
    return [step.same([data, places, updates])[0].like(data)]


def _reduction(step: Step) -> dict[str, str]:
    word = step.attribute("reduction", b"none")
    return {"reduction": word.decode() if isinstance(word, bytes) else str(word)}


def _whole_rows(step: Step, data: Value, indices: Value, axis: int) -> Value | None:
    """Return indices of whole rows, if those of a ScatterElements are constant along each row."""
    whole = axis == 0 and indices.shape[1:] == data.shape[1:] and indices.spread_of is not None
    if not whole or indices.axis not in (None, 0):
        return None
    graph, bound = step.graph, indices.shape[0]
    source = Value(
        name=str(indices.spread_of), kind=indices.kind, shape=(bound, *(1,) * (data.rank - 1))
    )
    flat = graph.op("Reshape", source, graph.integers(bound))
    flat = flat.like(indices)
    if data.axis == 0:
        flat = _from_the_end(graph, flat, data.count)
    return graph.op("Reshape", _nowhere(graph, flat), graph.integers(bound, 1))


def scatter_nd(step: Step) -> Sequence[Value]:
    """ScatterND; invalid rows write nothing."""
    data, indices, updates = (step.operand(i) for i in range(3))
    if indices.axis is not None and indices.axis == indices.rank - 1:
        raise RowError("its tuples of indices have a variable length")
    depth = indices.shape[-1]
    refuse_if(data.axis is not None and data.axis >= depth and indices.axis is not None, TWO_AXES)
    inner = updates.axis is not None and updates.axis >= indices.rank - 1
    if inner:  # the updates are whole pieces of rows
        same = data.axis is not None and data.rank - data.axis == updates.rank - (updates.axis or 0)
        refuse_if(not same or one_count([data, updates]) is None, FIXED)
    else:
        _require_same_rows(indices, updates, indices.axis, updates.axis)
    places = _nowhere(step.graph, _positive(step, indices, data, depth))
    return [step.same([data, places, updates])[0].like(data)]


def _require_same_rows(
    indices: Value, updates: Value, first: int | None, second: int | None
) -> None:
    refuse_if(first != second, FIXED)
    one_count([indices, updates])


RULES: Mapping[str, Rule] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
