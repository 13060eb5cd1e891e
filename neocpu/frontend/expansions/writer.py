"""The node that an expansion replaces, and the nodes that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.onnx_graph.weight_store import array_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """Facts about a graph's tensors.

    Attributes
    ----------
    shapes : mapping of str to tuple of int
        Shapes of tensors without unknown dimensions.
    types : mapping of str to int
        ONNX's codes of element types.
    constants : mapping of str to onnx.TensorProto
    makers : mapping of str to onnx.NodeProto
        The node that makes each tensor.
    results : set of str
        The tensors that the graph returns.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, int]
    constants: Mapping[str, onnx.TensorProto]
    makers: Mapping[str, onnx.NodeProto]
    results: Set[str]


@dataclass(slots=True, kw_only=True)
class Writer(NodeWriter):
    """A node of a graph, and the nodes that replace it.

    Attributes
    ----------
    node : onnx.NodeProto
    """

    node: onnx.NodeProto
    graph: Graph

    @property
    def wrote(self) -> bool:
        """Whether there is a replacement."""
        return bool(self.nodes or self.tensors)

    def used(self, output: int) -> bool:
        """Return whether an output has a name."""
        return output < len(self.node.output) and bool(self.node.output[output])

    def has(self, index: int) -> bool:
        """Return whether an input is present."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def input(self, index: int) -> str:
        """Return an input's name; an empty one if it is left out."""
        return self.node.input[index] if self.has(index) else ""

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return an input's shape.

        Raises
        ------
        ValueError
            The shape depends on data.
        """
        return self._known(self.node.input[index])

    def made(self, output: int = 0) -> tuple[int, ...]:
        """Return an output's shape; see `shape`."""
        return self._known(self.node.output[output])

    def _known(self, name: str) -> tuple[int, ...]:
        if name not in self.graph.shapes:
            raise ValueError(f"the shape of '{name}' depends on the data")
        return self.graph.shapes[name]

    def dtype(self, index: int = 0) -> np.dtype[Any]:
        """Return an input's element type."""
        kind = self.graph.types[self.node.input[index]]
        dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(kind)
        return dtype

    def constant(self, index: int) -> Array:
        """Return a constant input's value.

        Raises
        ------
        ValueError
            The input is computed at run time.
        """
        name = self.node.input[index]
        if name not in self.graph.constants:
            raise ValueError(f"its input '{name}' must be a constant")
        value: Array = array_of(self.graph.constants[name])
        return value

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value; strings are decoded."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def const(self, value: npt.ArrayLike, like: int | None = None) -> str:
        """Write a constant, in the element type of input ``like`` if there is one."""
        return NodeWriter.const(
            self, value if like is None else np.asarray(value, self.dtype(like))
        )

    def define(self, name: str, value: Array) -> None:
        """Make one of the node's outputs a constant, of its inferred type."""
        kind = helper.tensor_dtype_to_np_dtype(self.graph.types[name])
        self.tensors.append(numpy_helper.from_array(value.astype(kind), name))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """Write a Reshape to a shape without zeros."""
        return self.op("Reshape", name, self.const(np.array(shape, np.int64)))

    def give(self, name: str, output: int = 0) -> None:
        """Make a tensor one of the node's outputs, if that output is used."""
        if self.used(output):
            self.op("Identity", name, output=self.node.output[output])
