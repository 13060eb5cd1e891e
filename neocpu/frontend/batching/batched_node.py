"""A node of a model of one image, and the changes that a batch makes to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.ir.row_analysis.independence import Shape
from neocpu.ir.row_analysis.onnx_call import OnnxCall


@dataclass(slots=True, kw_only=True)
class BatchedGraph:
    """A graph that is changed node by node.

    Attributes
    ----------
    batch : int
        The number of images.
    shapes : mapping of str to shape
        The shapes of all tensors in the model of one image.
    constants : mapping of str to TensorProto
        The constants of that model.
    added : list of TensorProto
        New constants.
    before : list of NodeProto
        Nodes to insert before the current one.
    numbers : iterator of int
        Numbers for new names.
    """

    batch: int
    shapes: Mapping[str, Shape]
    constants: Mapping[str, onnx.TensorProto]
    added: list[onnx.TensorProto] = field(default_factory=list)
    before: list[onnx.NodeProto] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, values: np.ndarray[Any, Any]) -> str:
        """Add a constant under a new name, and return the name."""
        taken = self.shapes
        name = next(
            name
            for name in map("batch.{}".format, self.numbers)
            if name not in taken and f"{name}.repeated" not in taken
        )
        self.added.append(numpy_helper.from_array(values, name))
        return name


class BatchedNode:
    """A node that reads tensors with a batch.

    Attributes
    ----------
    call : OnnxCall
        The node. The extent of the batch is 1 in its shapes.
    output : shape
        The shape of its first output.
    batched : mapping of int to int
        Positions of the inputs that differ from image to image, at least one, each with the
        dimension of the batch.
    """

    def __init__(
        self, node: onnx.NodeProto, batched: Mapping[int, int], graph: BatchedGraph
    ) -> None:
        shapes = graph.shapes
        self.batched = batched
        self.output = shapes[node.output[0]]
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
        self._node.input[index] = self._graph.add(changed)

    def set_target(self, axis: int) -> None:
        """Make the constant second input the output's shape, with the batch in ``axis``."""
        target = list(self.output)
        target[axis] = self._graph.batch
        self._node.input[1] = self._graph.add(np.array(target, np.int64))

    def repeat(self, index: int, axis: int) -> None:
        """Repeat an input that is the same for all images along ``axis``."""
        extents = [1] * self.call.rank(index)
        extents[axis] = self._graph.batch
        target = self._graph.add(np.array(extents, np.int64))
        inputs, repeated = [self._node.input[index], target], f"{target}.repeated"
        self._graph.before.append(onnx.helper.make_node("Expand", inputs, [repeated]))
        self._node.input[index] = repeated
