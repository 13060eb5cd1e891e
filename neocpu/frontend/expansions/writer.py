"""The node that an expansion replaces, and the nodes that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.unsupported import describe

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Facts about a graph's tensors, as far as they are known."""

    shapes: Mapping[str, tuple[int, ...]]  # those without unknown dimensions
    types: Mapping[str, int]  # ONNX's codes
    constants: Mapping[str, onnx.TensorProto]
    makers: Mapping[str, onnx.NodeProto]  # the node that makes each tensor
    results: Set[str]  # the tensors that the graph returns


NO_FACTS = Graph(shapes={}, types={}, constants={}, makers={}, results=frozenset())


@dataclass(slots=True, kw_only=True)
class Writer(NodeWriter):
    """A node of a graph, and the nodes that replace it."""

    node: onnx.NodeProto
    graph: Graph = NO_FACTS

    @property
    def wrote(self) -> bool:
        return bool(self.nodes or self.tensors)

    def input(self, index: int) -> str:
        """Return an input's name; an empty one if it is left out."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def output(self, index: int) -> str:
        """Return an output's name; an empty one if it is left out."""
        return self.node.output[index] if index < len(self.node.output) else ""

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return an input's shape; a `ValueError` if it depends on data."""
        return self._known(self.node.input[index])

    def made(self) -> tuple[int, ...]:
        """Return the first output's shape; a `ValueError` if it depends on data."""
        return self._known(self.node.output[0])

    def _known(self, name: str) -> tuple[int, ...]:
        if name not in self.graph.shapes:
            raise ValueError(f"the shape of '{name}' depends on the data")
        return self.graph.shapes[name]

    def dtype(self, index: int = 0) -> np.dtype[Any]:
        kind = self.graph.types[self.node.input[index]]
        dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(kind)
        return dtype

    def constant(self, index: int) -> Array:
        """Return a constant input's value; a `ValueError` if it is computed at run time."""
        name = self.node.input[index]
        if name not in self.graph.constants:
            raise ValueError(f"its input '{name}' must be a constant")
        return np.asarray(array_of(self.graph.constants[name]))

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value; strings are decoded."""
        value = attributes_of(self.node).get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def const(self, value: npt.ArrayLike, like: int | None = None) -> str:
        """Write a constant, of the element type of input ``like`` if given; return its name."""
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

    def make(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Write the node that makes the first output."""
        self.op(op_type, *inputs, output=self.output(0), **attributes)

    def give(self, name: str, output: int = 0) -> None:
        """Make a tensor one of the node's outputs, if that output is used."""
        if self.output(output):
            self.op("Identity", name, output=self.output(output))


def prefixed(graph: onnx.GraphProto, wish: str) -> str:
    """Return a prefix that no name of a graph's nodes begins with."""
    return FreshNames(n for node in graph.node for n in (*node.input, *node.output)).prefix(wish)


def refusal(node: onnx.NodeProto, reason: object) -> UnsupportedError:
    """Return the error for a node of a form that cannot be written as others."""
    return UnsupportedError(f"cannot compile {describe(node)}: {reason}")
