"""One node of the original graph, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.rows.extent import Extent
from neocpu.frontend.rows.row_graph import Array, RowGraph
from neocpu.frontend.rows.row_value import RowError, Value

MIXED = "it combines rows that different operators selected"
FIXED = "it combines the selected rows with a fixed number of rows"


@dataclass(frozen=True, slots=True)
class Step:
    """A node that reads partly valid rows, or makes such rows.

    Attributes
    ----------
    node : onnx.NodeProto
        The node.
    operands : tuple of Value or None
        The inputs; None for an omitted one.
    graph : RowGraph
        The graph under construction.
    """

    node: onnx.NodeProto
    operands: tuple[Value | None, ...]
    graph: RowGraph

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes, by name."""
        return attributes_of(self.node)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        return self.attributes.get(name, default)

    def operand(self, index: int) -> Value:
        """Return an input that must not be omitted."""
        value = self.optional(index)
        if value is None:
            raise RowError(f"it lacks its input {index}")
        return value

    def optional(self, index: int) -> Value | None:
        """Return an input, or None if it is omitted."""
        return self.operands[index] if index < len(self.operands) else None

    def array(self, index: int) -> Array | None:
        """Return a constant input; None if it is omitted.

        Raises
        ------
        RowError
            The input is computed at run time.
        """
        value = self.optional(index)
        if value is None:
            return None
        array = self.graph.array(value)
        if array is None:
            raise RowError("its parameters depend on the selected rows")
        return array

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute ``axis`` as a number that is not negative."""
        return int(self.attribute("axis", default)) % max(rank, 1)

    def only_first_bounded(self) -> Value:
        """Return the first input; all rows of the others must be valid."""
        if any(value is not None and value.axis is not None for value in self.operands[1:]):
            raise RowError("its parameters depend on the selected rows")
        return self.operand(0)

    def same(self, inputs: Sequence[Value | None] | None = None, **changed: Any) -> list[Value]:
        """Write the node on other inputs, and return its outputs as if all rows were valid."""
        read = self.operands if inputs is None else inputs
        attributes = {**self.attributes, **changed}
        kept = {name: value for name, value in attributes.items() if value is not None}
        node = self.node
        return self.graph.emit(node.op_type, read, kept, node.output, node.name)

    def last(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Write another operator instead of the node."""
        node = self.node
        return self.graph.emit(op_type, inputs, attributes, node.output[:1], node.name)[0]


Rule = Callable[[Step], Sequence[Value]]
"""A function that writes a node for partly valid rows and returns its outputs, or raises a
`RowError`."""


def one_count(values: Sequence[Value]) -> Extent | None:
    """Return the number of valid rows that several tensors share; None if all rows are valid."""
    counts = {value.count for value in values if value.axis is not None}
    if len(counts) > 1:
        raise RowError(MIXED)
    return counts.pop() if counts else None
