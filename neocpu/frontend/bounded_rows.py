"""Tensors whose number of rows only the data decides: an upper bound and a count instead.

NonMaxSuppression selects as many rows as it finds. Here it becomes an operator of two outputs: as
many rows as it could select, and how many of them count. Everything after it that works row by row
then has static shapes, computes rows that do not count as well, and the runtime cuts them off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from neocpu.frontend.row_rules import Operand, RowNode, broken_rows
from neocpu.frontend.shapes import static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe
from neocpu.frontend.weightless_model import strip_weights

_SUPPRESSION = "NonMaxSuppression"


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """What `bound_rows` found.

    Attributes
    ----------
    counts : mapping of str to str
        Values whose rows do not all count, and the value that says how many do.
    problems : tuple of str
        The nodes that do not keep such rows apart, each with the reason.
    """

    counts: Mapping[str, str]
    problems: tuple[str, ...]


def bound_rows(model: onnx.ModelProto) -> BoundedRows:
    """Give what NonMaxSuppression selects, and all that is computed of it, static upper bounds.

    Each such node gets a second output, the number of rows (int64, one element); the counts that
    graph outputs need become hidden graph outputs after them. Shapes are written into the graph.

    Parameters
    ----------
    model : onnx.ModelProto
        The simplified model, changed in place.
    """
    nodes = [node for node in model.graph.node if _is_suppression(node)]
    if not nodes:
        return BoundedRows({}, ())
    walk = _Walk(_Values(model.graph))
    for node in nodes:
        walk.bound(node)
    _infer(model)
    walk.values = _Values(model.graph)
    for node in model.graph.node:
        walk.follow(node)
    _append_counts(model.graph, walk.counts)
    return BoundedRows(walk.counts, tuple(walk.problems))


def unbound_rows(graph: onnx.GraphProto) -> set[str]:
    """Make a graph standard ONNX again, and return the values that selected rows decide.

    Parameters
    ----------
    graph : onnx.GraphProto
        After `bound_rows`, changed in place: counts go, and what has so many rows has no shape but
        that of an output.
    """
    counts: set[str] = set()
    found: set[str] = set()
    for node in graph.node:
        if _is_suppression(node):
            counts.update(node.output[1:])
            del node.output[1:]
            found.update(node.output)
        elif found.intersection(node.input):
            found.update(node.output)
    outputs = [value for value in graph.output if value.name not in counts]
    inner = [value for value in graph.value_info if value.name not in counts | found]
    for values, kept in ((graph.output, outputs), (graph.value_info, inner)):
        del values[:]
        values.extend(kept)
    for value in graph.output:
        if value.name in found and value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "rows"
    return found


def _is_suppression(node: onnx.NodeProto) -> bool:
    return node.op_type == _SUPPRESSION and node.domain in STANDARD_DOMAINS


class _Values:
    """Shapes, kinds and constants of a graph's values, by name."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, int] = {}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.kinds[value.name] = value.type.tensor_type.elem_type
            shape = static_dims(value)
            if shape is not None:
                self.shapes[value.name] = shape
        for tensor in graph.initializer:
            self.kinds[tensor.name] = tensor.data_type
            self.shapes[tensor.name] = tuple(tensor.dims)

    def constant(self, name: str) -> np.ndarray | None:
        """Return an initializer's value, or None for any other value."""
        tensor = self._constants.get(name)
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)

    def operand(self, name: str, count: str | None) -> Operand | None:
        """Return a node's input; None if its shape is unknown."""
        if name not in self.shapes:
            return None
        # Only parameters are looked into, and they are small.
        value = self.constant(name) if np.prod(self.shapes[name]) <= 64 else None
        return Operand(self.shapes[name], count, value)


@dataclass(slots=True)
class _Walk:
    """Follows the rows through the graph, in the order of its nodes."""

    values: _Values
    counts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: Values after a problem: what becomes of them is not worth another message.
    lost: set[str] = field(default_factory=set)

    def bound(self, node: onnx.NodeProto) -> None:
        """Give a NonMaxSuppression its static shape and its second output."""
        # Needs TVM, which only models with such a node wait for here.
        from neocpu.frontend.converters.convert_detection import suppression_workload

        selected = node.output[0]
        try:
            names = [*node.input, "", "", ""][:5]
            workload = suppression_workload(
                self.values.shapes.get(names[0]),
                self.values.shapes.get(names[1]),
                [self._limit(name) for name in names[2:]],
                any(a.name == "center_point_box" and a.i for a in node.attribute),
            )
        except ValueError as error:
            self._lose(node, str(error))
            return
        count = f"{selected}.count"
        while count in self.values.kinds:
            count += "_"
        node.output.append(count)
        self.counts[selected] = count
        for name, shape in ((selected, (workload.rows, 3)), (count, (1,))):
            _declare(self.values.graph, name, shape)

    def _limit(self, name: str) -> np.ndarray | None:
        if not name:
            return None
        value = self.values.constant(name)
        if value is None:
            raise ValueError(f"its limit '{name}' is no constant")
        return value

    def follow(self, node: onnx.NodeProto) -> None:
        """Find out what becomes of the rows a node reads."""
        if self.lost.intersection(node.input):
            self.lost.update(node.output)
            return
        read = {self.counts[name] for name in node.input if name in self.counts}
        if not read or _is_suppression(node):
            if read:
                self._lose(node, "it suppresses among selected rows")
            return
        operands = [self.values.operand(name, self.counts.get(name)) for name in node.input]
        outputs = [name for name in node.output if name]
        unknown = any(
            name and operand is None for name, operand in zip(node.input, operands, strict=True)
        )
        if unknown or any(name not in self.values.shapes for name in outputs):
            self._lose(node, "the shape of its result is unknown")
            return
        rank = len(self.values.shapes[outputs[0]])
        if reason := broken_rows(RowNode(node, tuple(operands), rank)):
            self._lose(node, reason)
            return
        self.counts.update(dict.fromkeys(outputs, read.pop()))

    def _lose(self, node: onnx.NodeProto, reason: str) -> None:
        self.problems.append(f"{describe(node)} ({reason})")
        self.lost.update(node.output)


def _declare(graph: onnx.GraphProto, name: str, shape: tuple[int, ...]) -> None:
    """Set the declared shape of an int64 value."""
    declared = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, shape)
    for values in (graph.output, graph.value_info):
        for value in values:
            if value.name == name:
                value.CopyFrom(declared)
                return
    graph.value_info.append(declared)


def _infer(model: onnx.ModelProto) -> None:
    """Infer the shapes of all values again that have no static one yet."""
    graph = model.graph
    light = onnx.ModelProto()
    light.CopyFrom(strip_weights(model).model)
    for values in (light.graph.value_info, light.graph.output):
        for value in values:
            if static_dims(value) is None:
                value.type.tensor_type.ClearField("shape")
    for node in light.graph.node:
        if _is_suppression(node):
            del node.output[1:]  # the standard knows one
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    known = {value.name: value for value in (*inferred.value_info, *inferred.output)}
    for value in (*graph.value_info, *graph.output):
        if static_dims(value) is None and value.name in known:
            value.CopyFrom(known.pop(value.name))
    declared = {value.name for value in (*graph.input, *graph.value_info, *graph.output)}
    declared |= {tensor.name for tensor in graph.initializer}
    graph.value_info.extend(value for name, value in known.items() if name not in declared)


def _append_counts(graph: onnx.GraphProto, counts: Mapping[str, str]) -> None:
    """Make hidden graph outputs of the counts that the graph's outputs need."""
    needed = dict.fromkeys(counts[v.name] for v in graph.output if v.name in counts)
    for name in needed:
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, (1,)))
