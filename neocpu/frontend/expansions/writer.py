"""What an expansion sees of the node it replaces, and writes instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """What is known of a graph's tensors.

    Attributes
    ----------
    shapes : mapping of str to tuple of int
        Of those without unknown dimensions.
    types : mapping of str to int
        ONNX's element types.
    constants : mapping of str to onnx.TensorProto
    results : set of str
        What the graph returns.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, int]
    constants: Mapping[str, onnx.TensorProto]
    results: Set[str]


@dataclass(slots=True)
class Writer:
    """One node of a graph, and the nodes that take its place.

    Attributes
    ----------
    node : onnx.NodeProto
    prefix : str
        What the names of new tensors begin with; no other name does.
    nodes, tensors : list
        What is written so far.
    """

    node: onnx.NodeProto
    graph: Graph
    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    @property
    def wrote(self) -> bool:
        """Whether anything takes the node's place."""
        return bool(self.nodes or self.tensors)

    def used(self, output: int) -> bool:
        """Return whether an output has a name."""
        return output < len(self.node.output) and bool(self.node.output[output])

    def has(self, index: int) -> bool:
        """Return whether an input is given."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def input(self, index: int) -> str:
        """Return an input's name; an empty one where it is left out."""
        return self.node.input[index] if self.has(index) else ""

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return an input's shape.

        Raises
        ------
        ValueError
            If it depends on data.
        """
        return self._known(self.node.input[index])

    def made(self, output: int = 0) -> tuple[int, ...]:
        """Return an output's shape, as `shape` does an input's."""
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
            If it is computed at run time.
        """
        name = self.node.input[index]
        if name not in self.graph.constants:
            raise ValueError(f"its input '{name}' must be a constant")
        value: Array = numpy_helper.to_array(self.graph.constants[name])
        return value

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value; strings as text."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def const(self, value: Array | Sequence[int] | float, like: int | None = None) -> str:
        """Write a constant; of the element type of input ``like``, if given. Lists are int64."""
        array = np.asarray(value, self.dtype(like) if like is not None else None)
        name = f"{self.prefix}c{len(self.tensors)}"
        self.tensors.append(
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        return name

    def define(self, name: str, value: Array) -> None:
        """Have one of the node's outputs be a constant, of the type that it is known to have."""
        kind = helper.tensor_dtype_to_np_dtype(self.graph.types[name])
        self.tensors.append(numpy_helper.from_array(value.astype(kind), name))

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Write a node; return its output's name, or a list of several."""
        names = [f"{self.prefix}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """Write a Reshape to a shape of no zeros."""
        return str(self.op("Reshape", name, self.const(np.array(shape, np.int64))))

    def give(self, name: str, output: int = 0) -> None:
        """Have a tensor be one of the node's outputs, if that is used."""
        if self.used(output):
            self.nodes.append(helper.make_node("Identity", [name], [self.node.output[output]]))
