"""Loops whose steps each compute one row of each result, as running them on test data shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from neocpu.frontend.control_flow.bodies import live_nodes
from neocpu.frontend.control_flow.loop_nodes import Kind, body_model
from neocpu.frontend.onnx_graph.constant_tensors import constant_of, constant_tensors
from neocpu.frontend.onnx_graph.subgraphs import graphs_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.unsupported import STANDARD_DOMAINS

Array = npt.NDArray[Any]

_MOST_ELEMENTS: Final = 1 << 24
"""Elements of the largest tensor of a body that is run: an image of 16 megapixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLoop:
    """A loop that appends rows to tensors that are empty before."""

    model: onnx.ModelProto
    count: str  # the value that decides the number of steps
    counted: str  # the tensor that has one row for each step, or ""
    reads: tuple[str, ...]  # outer tensors; a step reads its own row of each
    rows: tuple[str, ...]  # what a step appends to each result, (1, ...)
    # outer values that are an extent of a tensor, with its axis
    extents: Mapping[str, tuple[str, int]]
    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, Array]

    def step(self, rows: Sequence[Array]) -> list[Array]:
        """Return the rows that a step appends to tensors of one row; any error may occur."""
        tensors = dict(zip(self.reads, rows, strict=True))
        constants = {**self.constants}
        for name, (tensor, axis) in self.extents.items():
            constants[name] = np.array(tensors[tensor].shape[axis])
        kinds = {
            name: Kind(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in tensors.items()
        }
        known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        body = body_model(self.model, self.nodes, known, kinds, self.rows)
        inferred = onnx.shape_inference.infer_shapes(body, data_prop=True).graph
        if any(math.prod(shape) > _MOST_ELEMENTS for shape in known_shapes(inferred).values()):
            raise ValueError("a body's tensor is too large")
        from neocpu.frontend.numpy_operators import table  # here, because few models need it

        found: list[Array] = table.evaluator_of(body).run(list(self.rows), tensors)
        return found


def row_loops(model: onnx.ModelProto) -> Iterator[tuple[int, RowLoop]]:
    """Yield the row loops of a graph, each with the index of its node."""
    graph = model.graph
    loops = [index for index, node in enumerate(graph.node) if _is(node, "Loop")]
    if not loops:
        return
    around = _Around(
        {name: array_of(t) for name, t in constant_tensors(graph).items()},
        {name: node for node in graph.node for name in node.output},
    )
    for index in loops:
        if (found := _recognised(model, graph.node[index], around)) is not None:
            yield index, found


@dataclass(frozen=True, slots=True)
class _Around:
    constants: Mapping[str, Array]
    makers: Mapping[str, onnx.NodeProto]

    def is_true(self, name: str) -> bool:
        return not name or (name in self.constants and bool(self.constants[name].all()))

    def is_empty(self, name: str) -> bool:
        if name in self.constants:
            return self.constants[name].shape[:1] == (0,)
        zeros = self.makers.get(name)
        joined = self.makers.get(zeros.input[0]) if _is(zeros, "ConstantOfShape") else None
        first = self.constants.get(joined.input[0]) if _is(joined, "Concat") else None
        return first is not None and first.size > 0 and int(first.flat[0]) == 0

    def extent(self, name: str) -> tuple[str, int] | None:
        """Return the tensor and the axis whose extent a value is, or None."""
        gather = self.makers.get(name)
        shape = self.makers.get(gather.input[0]) if _is(gather, "Gather") else None
        if not _is(gather, "Gather") or not _is(shape, "Shape") or shape.attribute:
            return None
        axis = self.constants.get(gather.input[1])
        return (shape.input[0], int(axis)) if axis is not None and axis.shape == () else None


def _is(node: onnx.NodeProto | None, op_type: str) -> TypeGuard[onnx.NodeProto]:
    return node is not None and node.op_type == op_type and node.domain in STANDARD_DOMAINS


def _recognised(model: onnx.ModelProto, node: onnx.NodeProto, around: _Around) -> RowLoop | None:
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    states = len(node.input) - 2
    if body is None or states < 1 or len(body.input) != 2 + states != len(body.output) + 1:
        return None
    index, going, *before = (value.name for value in body.input)
    makers = {name: each for each in body.node for name in each.output}
    goes_on = _source(makers, body.output[0].name)
    if goes_on != going and not (goes_on and around.is_true(goes_on)):
        return None
    rows = []
    for state, value, start in zip(before, body.output[1:], node.input[2:], strict=True):
        joined = makers.get(value.name)
        if joined is None or not _is(joined, "Concat") or joined.attribute[0].i != 0:
            return None
        if len(joined.input) != 2 or _source(makers, joined.input[0]) != state:
            return None
        if not around.is_empty(start):
            return None
        rows.append(joined.input[1])
    if not around.is_true(node.input[1]):
        return None
    nodes = live_nodes(body.node, rows)
    if any(map(graphs_of, nodes)):
        return None
    reads = dict.fromkeys(
        each.input[0]
        for each in nodes
        if _is(each, "Gather") and each.input[1] == index and each.input[0] not in makers
    )
    inner = {name: constant_of(each) for name, each in makers.items() if each.op_type == "Constant"}
    names = {name for each in nodes for name in each.input if name} - makers.keys()
    names -= {index, *reads}
    extents = {name: found for name in names if (found := around.extent(name)) is not None}
    outer = {name: around.constants[name] for name in names if name in around.constants}
    if names - extents.keys() - outer.keys() or any(t not in reads for t, _ in extents.values()):
        return None
    counted, axis = around.extent(node.input[0]) or ("", 0)
    return RowLoop(
        model=model,
        count=node.input[0],
        counted="" if axis else counted,
        reads=tuple(reads),
        rows=tuple(rows),
        extents=extents,
        nodes=[each for each in nodes if each.op_type != "Constant"],
        constants={**inner, **outer, index: np.array(0)},
    )


def _source(makers: Mapping[str, onnx.NodeProto], name: str) -> str:
    """Return the value that ``name`` is a chain of Casts and Identities of, perhaps itself."""
    while _is(makers.get(name), "Cast") or _is(makers.get(name), "Identity"):
        name = makers[name].input[0]
    return name
