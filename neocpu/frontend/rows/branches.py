"""The selection between two tensors at run time, as between the branches of an If."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from neocpu.frontend.rows.extent import Count, Extent
from neocpu.frontend.rows.keep_rows import independent
from neocpu.frontend.rows.row_graph import RowGraph
from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import Rule, Step


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
        raise RowError("one row may be spread over all of them, or be all there is")
    return [chosen(step.graph, condition, first, second, step.node.output[0])]


def chosen(graph: RowGraph, condition: Value, first: Value, second: Value, name: str) -> Value:
    """Return ``first`` if a boolean is true, else ``second``, with its number of rows.

    Raises
    ------
    RowError
        The tensors differ in more than the number of rows along one axis.
    """
    if first.rank != second.rank or first.kind != second.kind:
        raise RowError("its branches make tensors of different ranks or types")
    if condition.rank:
        condition = graph.emit_one("Reshape", condition, graph.integers())
    pairs = list(zip(first.extents, second.extents, strict=True))
    axes = [i for i, (one, other) in enumerate(pairs) if one != other or not one.known]
    if not axes:
        return graph.emit("Where", [condition, first, second], outputs=[name])[0]
    if len(axes) > 1:
        raise RowError("its branches differ along several axes")
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
    found = graph.emit_one("Where", condition, graph.counted(first), graph.counted(second))
    return Extent.of(Count(found.name, max(first.most, second.most)))


def _filled_up(graph: RowGraph, value: Value, axis: int, bound: int) -> Value:
    missing = bound - value.shape[axis]
    if not missing:
        return value
    shape = [*value.shape[:axis], missing, *value.shape[axis + 1 :]]
    zeros = graph.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(value.kind)))
    return graph.emit_one("Concat", value, zeros, axis=axis)


RULES: Mapping[str, Rule] = {"Where": where}
