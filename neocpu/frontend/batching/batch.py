"""Change a model of one image into a model of several.

The batch is one dimension of each tensor that differs from image to image; its extent is 1 in the
model as read. Nodes that compute images independently pass it on; constants that contain it are
changed. A node that would mix images, or drop their dimension, is an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.names import fresh_names
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.static_shapes import real_inputs, set_dims, static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe
from neocpu.ir.row_analysis.independence import PARAMETERS, DependentRowsError, Shape, carry
from neocpu.ir.row_analysis.onnx_call import OnnxCall
from neocpu.ir.row_analysis.table import ONNX_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedGraph:
    """A graph of one image, whose nodes are changed one by one."""

    batch: int
    shapes: Mapping[str, Shape]
    constants: Mapping[str, onnx.TensorProto]
    writer: NodeWriter  # of new constants, and of nodes to insert before the current one


class BatchedNode:
    """A node of a model of one image that reads tensors with a batch."""

    def __init__(
        self, node: onnx.NodeProto, batched: Mapping[int, int], graph: BatchedGraph
    ) -> None:
        shapes = graph.shapes
        self.batched = batched  # the dimension of the batch, by the input's position
        self.output = shapes[node.output[0]]  # the shape of the first result
        self.call = OnnxCall(
            inputs=tuple(shapes[name] if name else None for name in node.input),
            result_rank=len(self.output),
            op_type=node.op_type,
            attributes=attributes_of(node),
            constant=self._constant,
        )
        self._node, self._graph = node, graph

    def _constant(self, index: int) -> np.ndarray[Any, Any] | None:
        name = self._node.input[index] if index < len(self._node.input) else ""
        tensor = self._graph.constants.get(name)
        return None if tensor is None else array_of(tensor)

    def set_extent(self, index: int, position: int) -> None:
        """Write the batch into a constant input of one dimension."""
        values = self._constant(index)
        assert values is not None
        changed = values.copy()
        changed[position] = self._graph.batch
        self._node.input[index] = self._graph.writer.const(changed)

    def set_target(self, axis: int) -> None:
        """Make the constant second input the output's shape, with the batch in ``axis``."""
        target = list(self.output)
        target[axis] = self._graph.batch
        self._node.input[1] = self._graph.writer.const(np.array(target, np.int64))

    def repeat(self, index: int, axis: int) -> None:
        """Repeat an input that is the same for all images along ``axis``."""
        extents = [1] * self.call.rank(index)
        extents[axis] = self._graph.batch
        target = self._graph.writer.const(np.array(extents, np.int64))
        repeated = self._graph.writer.op("Expand", self._node.input[index], target)
        self._node.input[index] = repeated


Rule: TypeAlias = Callable[[BatchedNode], Sequence[int]]
"""A function that returns the batch dimension of each output, or one for all of them."""


def _independent(node: BatchedNode) -> Sequence[int]:
    """Return the dimensions that the table of operators gives, and repeat inputs as it requires."""
    call = node.call
    found = carry(call.inputs, node.batched, ONNX_RULES[call.op_type](call))
    for index, axis in found.required.items():
        if call.shape(index)[axis] != 1:
            raise DependentRowsError("spreads an image over the {axis}")
        node.repeat(index, axis)
    if node.output[found.results[0]] != 1:
        raise DependentRowsError("spreads an image over the {axis}")
    return found.results


def _data_axis(node: BatchedNode) -> int:
    """Return the batch dimension of the first input; no other input may have one."""
    if set(node.batched) != {0}:
        raise DependentRowsError(PARAMETERS)
    return node.batched[0]


def _flatten(node: BatchedNode) -> Sequence[int]:
    shape = node.call.shape()
    (at,) = node.call.integers("axis") or [1]
    rows = shape[: at + len(shape) if at < 0 else at]
    if _data_axis(node) != 0 or not rows or math.prod(rows) != 1:
        raise DependentRowsError("merges the {axis} with another")
    return [0]


def _reshape(node: BatchedNode) -> Sequence[int]:
    """Keep the dimensions before the batch, and give the target an extent for the batch."""
    axis = _data_axis(node)
    _check_constant_shape(node)
    before = math.prod(node.call.shape()[:axis])
    places = [
        place
        for place, extent in enumerate(node.output)
        if extent == 1 and math.prod(node.output[:place]) == before
    ]
    if not places:
        raise DependentRowsError(
            f"to {'x'.join(map(str, node.output))} leaves the batch no dimension of its own"
        )
    place = axis if axis in places else places[0]
    node.set_target(place)
    return [place]


def _expand(node: BatchedNode) -> Sequence[int]:
    _check_constant_shape(node)
    return _independent(node)


def _check_constant_shape(node: BatchedNode) -> None:
    if node.call.constant(1) is None:
        raise DependentRowsError("has a shape that is not a constant")


def _resize(node: BatchedNode) -> Sequence[int]:
    results = _independent(node)
    call = node.call
    axes = call.integers("axes") or range(call.rank())
    if call.integers("sizes") is not None:
        for place, used in enumerate(axes):
            if used % call.rank() == 0:
                node.set_extent(3, place)
    return results


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(ONNX_RULES, _independent),
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Resize": _resize,
}
"""The rules by operator; other operators may mix images."""


def set_batch(model: onnx.ModelProto, batches: Mapping[str, int]) -> None:
    """Change the first extent of some inputs of a simplified model from 1 to a batch, in place.

    Other inputs are the same for all images. Raises an `UnsupportedError` if a node mixes images or
    is written for one image, or an output is the same for all images.
    """
    graph = model.graph
    (batch,) = set(batches.values())
    constants = {tensor.name: tensor for tensor in graph.initializer}
    axes = dict.fromkeys(batches, 0)
    writer = NodeWriter(fresh_names(graph).prefix("batch_"))
    changed = BatchedGraph(
        batch=batch, shapes=known_shapes(graph), constants=constants, writer=writer
    )
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        written = len(writer.nodes)
        _follow(node, axes, changed)
        graph.node.extend((*writer.nodes[written:], node))
    graph.initializer.extend(writer.tensors)
    for value in graph.output:
        _check_output(value.name, axes.get(value.name), batch)
        value.type.tensor_type.ClearField("shape")
    for value in real_inputs(graph):
        if value.name in batches:
            shape = static_dims(value)
            assert shape is not None, value.name
            set_dims(value, (batch, *shape[1:]))
    del graph.value_info[:]
    _drop_unused_constants(graph)


def _drop_unused_constants(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]


def _check_output(name: str, axis: int | None, batch: int) -> None:
    if axis == 0:
        return
    what = "is the same for every image" if axis is None else f"has the batch in dimension {axis}"
    raise UnsupportedError(
        f"--batch {batch}: output '{name}' {what}, not one row per image; export the model with a "
        "dynamic batch"
    )


def _follow(node: onnx.NodeProto, axes: dict[str, int], changed: BatchedGraph) -> None:
    """Add the batch dimension of a node's outputs to ``axes``; change a node that contains it."""
    batched = {i: axes[name] for i, name in enumerate(node.input) if name in axes}
    if not batched:
        return
    rule = RULES.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
    try:
        if rule is None:
            raise DependentRowsError("may mix the {rows}")
        if any(name and name not in changed.shapes for name in (*node.input, *node.output)):
            raise DependentRowsError("has tensors of unknown shape")
        found = [*rule(BatchedNode(node, batched, changed))]
    except DependentRowsError as error:
        reason = error.described(
            rows="images of a batch", row="image of a batch", axis="dimension of the batch"
        )
        raise UnsupportedError(
            f"--batch {changed.batch}: {describe(node)} {reason}; export the model with a dynamic "
            "batch, or compile it for one image"
        ) from None
    if len(found) == 1:
        found *= len(node.output)
    axes.update({name: axis for name, axis in zip(node.output, found, strict=False) if name})
