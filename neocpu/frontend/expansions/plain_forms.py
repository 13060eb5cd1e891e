"""Forms that converters do not take: empty tensors, scalars for lists, scatters of a slice.

PyTorch exports ``x[:, 1:] += y`` as a ScatterND whose indices name each changed element, with eight
bytes for each coordinate: gigabytes for a few numbers. It becomes concatenations.
"""

from __future__ import annotations

import math

import numpy as np

from neocpu.frontend.expansions.writer import Array, Graph, Writer
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS


def drop_empty(w: Writer) -> None:
    """Make a node's empty outputs, but not the graph's, constants, and drop its empty inputs."""
    node, shapes = w.node, w.graph.shapes
    results = [name for name in node.output if name]
    empty = [name for name in results if math.prod(shapes.get(name, (1,))) == 0]
    if not w.graph.results.isdisjoint(empty):
        return
    if empty and len(empty) == len(results):
        for name in empty:
            w.define(name, np.zeros(shapes[name]))
    elif empty and node.op_type == "Split" and shapes.keys() >= set(node.output):
        _split(w, empty)
    elif node.op_type == "Concat":
        filled = [name for name in node.input if math.prod(shapes.get(name, (1,))) > 0]
        if filled and len(filled) < len(node.input):
            w.give(w.op("Concat", *filled, axis=w.attribute("axis", 0)))


def _split(w: Writer, empty: list[str]) -> None:
    axis, start = int(w.attribute("axis", 0)), 0
    for number, name in enumerate(w.node.output):
        size = w.graph.shapes[name][axis]
        if name in empty:
            w.define(name, np.zeros(w.graph.shapes[name]))
        else:
            ends = w.const([start]), w.const([start + size]), w.const([axis])
            w.give(w.op("Slice", w.input(0), *ends), number)
        start += size


def _split_constant(w: Writer) -> None:
    """Make the parts of a constant constants, which ONNX's optimiser leaves."""
    if w.input(0) not in w.graph.constants or not w.graph.shapes.keys() >= set(w.node.output):
        return
    axis, start = int(w.attribute("axis", 0)), 0
    whole = w.constant(0)
    for output in w.node.output:
        size = w.graph.shapes[output][axis]
        w.define(output, whole.take(range(start, start + size), axis))
        start += size


def _list_numbers(w: Writer) -> None:
    """Replace scalars by lists of one number, which converters need."""
    given = list(w.node.input[1:])
    listed = [
        w.const([int(w.constant(i))])
        if name in w.graph.constants and not w.constant(i).ndim
        else name
        for i, name in enumerate(given, 1)
    ]
    if listed != given:
        w.give(w.op(w.node.op_type, w.input(0), *listed))


def _join_slice_update(w: Writer) -> None:
    """ScatterND of one slice: by axis, the part before it, the updates, and the part after."""
    shapes = w.graph.shapes
    if w.attribute("reduction", "none") != "none" or not {*w.node.input} <= shapes.keys():
        return
    shape, ranges = w.shape(), _ranges(w.graph, w.input(1))
    if ranges is None or any(end > extent for (_, end), extent in zip(ranges, shape, strict=False)):
        return
    if w.shape(2) != (*(end - start for start, end in ranges), *shape[len(ranges) :]):
        return
    joined = w.input(2)
    for axis, (start, end) in reversed(list(enumerate(ranges))):
        before, after = (
            [_part(w, ranges[:axis], bounds)] if bounds[0] < bounds[1] else []
            for bounds in ((0, start), (end, shape[axis]))
        )
        if before or after:
            joined = w.op("Concat", *before, joined, *after, axis=axis)
    w.give(joined)


def _part(w: Writer, ranges: list[tuple[int, int]], last: tuple[int, int]) -> str:
    starts, ends = zip(*ranges, last, strict=True)
    return w.op("Slice", w.input(0), w.const(starts), w.const(ends))


def _ranges(graph: Graph, indices: str) -> list[tuple[int, int]] | None:
    """Return the range of the slice along each axis, if the indices name one in order."""
    *extents, depth = graph.shapes[indices]
    columns = _columns(graph, indices)
    if columns is None or not len(columns) == len(extents) == depth or 0 in extents:
        return None
    ranges = []
    for axis, column in enumerate(columns):
        line = column[tuple(slice(None) if each == axis else 0 for each in range(depth))]
        start, end = int(line[0]), int(line[0]) + len(line)
        along = np.arange(start, end).reshape([-1 if each == axis else 1 for each in range(depth)])
        repeated = all(
            stride == 0 or extent == 1 or each == axis
            for each, (stride, extent) in enumerate(zip(column.strides, column.shape, strict=True))
        )
        found = line if repeated else column
        wanted = along.reshape(-1) if repeated else np.broadcast_to(along, column.shape)
        if start < 0 or not np.array_equal(found, wanted):
            return None
        ranges.append((start, end))
    return ranges


def _columns(graph: Graph, indices: str) -> list[Array] | None:
    """Return the entries along the last axis; repeated values are views."""
    whole = _value(graph, indices)
    if whole is not None:
        return [whole[..., column] for column in range(whole.shape[-1])]
    joined = graph.makers.get(indices)
    rank = len(graph.shapes[indices])
    if joined is None or joined.op_type != "Concat" or joined.attribute[0].i % rank != rank - 1:
        return None
    parts = [_value(graph, name) for name in joined.input]
    return [part[..., 0] for part in parts if part is not None and part.shape[-1] == 1] or None


def _value(graph: Graph, name: str) -> Array | None:
    """Return a known value; a repeated one is a view."""
    if name in graph.constants:
        return np.asarray(array_of(graph.constants[name]))
    node = graph.makers.get(name)
    if node is None or node.op_type not in ("Expand", "Unsqueeze"):
        return None
    source, parameter = (_value(graph, each) for each in node.input)
    if source is None or parameter is None or node.domain not in STANDARD_DOMAINS:
        return None
    numbers = tuple(parameter.tolist())
    if node.op_type == "Unsqueeze":
        return np.expand_dims(source, numbers)
    return np.broadcast_to(source, np.broadcast_shapes(source.shape, numbers))


EXPANSIONS = {
    "ScatterND": _join_slice_update,
    "Slice": _list_numbers,
    "Split": _split_constant,
    "Squeeze": _list_numbers,
    "Unsqueeze": _list_numbers,
}
