"""Sequences and optional values at a model's ends: modules take and give tensors alone.

Inside, the compiler rewrites them (`neocpu.frontend.control_flow`), for how many elements there are
is known once the shapes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.static_shapes import real_inputs, set_dims, static_dims
from neocpu.frontend.simplify_onnx import simplify_model
from neocpu.onnx_backend.specialise import AnyArray

_TENSOR: Final = "tensor_type"


@dataclass(slots=True)
class _Ends:
    """Nodes and inputs in front of a graph, made of what a run is given."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    arrays: dict[str, AnyArray] = field(default_factory=dict)

    def take(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        """Have ``name`` be a value of this type, of tensors that are inputs."""
        which = kind.WhichOneof("value")
        if which == _TENSOR:
            if value is None or isinstance(value, list | tuple):
                raise UsageError(f"input '{name}' must be an array, got {type(value).__name__}")
            self.inputs.append(helper.make_value_info(name, kind))
            self.arrays[name] = np.asarray(value)
        elif which == "sequence_type":
            if not isinstance(value, list | tuple):
                raise UsageError(f"input '{name}' must be a list, got {type(value).__name__}")
            self._sequence(name, kind.sequence_type.elem_type, value)
        elif which == "optional_type":
            inner = kind.optional_type.elem_type
            if value is not None:
                self.take(f"{name}/value", inner, value)
            given = [] if value is None else [f"{name}/value"]
            self.nodes.append(helper.make_node("Optional", given, [name], type=inner))
        else:
            raise UsageError(f"input '{name}' is a {which}, which cannot be given")

    def _sequence(self, name: str, kind: onnx.TypeProto, values: Sequence[Any]) -> None:
        names = [f"{name}/{number}" for number in range(len(values))]
        for each, value in zip(names, values, strict=True):
            self.take(each, kind, value)
        if names:
            self.nodes.append(helper.make_node("SequenceConstruct", names, [name]))
        else:
            dtype = kind.tensor_type.elem_type
            self.nodes.append(helper.make_node("SequenceEmpty", [], [name], dtype=dtype))


def take_apart(
    model: onnx.ModelProto, values: Sequence[Any]
) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """Return a model whose inputs are tensors, and arrays for them.

    Parameters
    ----------
    values : sequence
        Of the model's own inputs: arrays, lists of them, or None of an optional value.

    Raises
    ------
    UsageError
        If one is of another kind.
    """
    ends, own = _Ends(), real_inputs(model.graph)
    for value, given in zip(own, values, strict=True):
        ends.take(value.name, value.type, given)
    if not ends.nodes:
        return model, ends.arrays
    taken = onnx.ModelProto()
    taken.CopyFrom(model)
    nodes = [*ends.nodes, *model.graph.node]
    del taken.graph.input[:], taken.graph.node[:]
    taken.graph.input.extend(ends.inputs)
    taken.graph.node.extend(nodes)
    return taken, ends.arrays


def has_lists(model: onnx.ModelProto) -> bool:
    """Return whether an output is no tensor."""
    return any(value.type.WhichOneof("value") != _TENSOR for value in model.graph.output)


def give_tensors(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model whose outputs are tensors, and what of them each output is put together of.

    Parameters
    ----------
    model : onnx.ModelProto
        With static input shapes.

    Returns
    -------
    onnx.ModelProto
    dict
        By output: the name of a tensor, a list of such names, or None.

    Raises
    ------
    NeoCPUError
        If data decides how many elements there are.
    """
    results = _Results(model)
    parts = {value.name: results.give(value.name, value.type) for value in model.graph.output}
    given = _with(model, results.nodes, results.tensors, results.outputs)
    shapes = {value.name: static_dims(value) for value in simplify_model(given).graph.output}
    for value in given.graph.output:
        if (shape := shapes.get(value.name)) is not None:
            set_dims(value, shape)
    return given, parts


@dataclass(slots=True)
class _Results:
    """Nodes and outputs after a graph, which take its outputs apart."""

    model: onnx.ModelProto
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def give(self, name: str, kind: onnx.TypeProto) -> Any:
        """Have a value's tensors be outputs; return their names, as `give_tensors` does."""
        which = kind.WhichOneof("value")
        if which == "optional_type":
            if not self._ask("OptionalHasElement", name, onnx.TensorProto.BOOL):
                return None
            inner = f"{name}/value"
            self.nodes.append(helper.make_node("OptionalGetElement", [name], [inner]))
            return self.give(inner, kind.optional_type.elem_type)
        if which == "sequence_type":
            count = int(self._ask("SequenceLength", name, onnx.TensorProto.INT64))
            return [self._element(name, number, kind) for number in range(count)]
        self.outputs.append(helper.make_value_info(name, kind))
        return name

    def _element(self, name: str, number: int, kind: onnx.TypeProto) -> Any:
        place, element = f"{name}/place_{number}", f"{name}/{number}"
        self.tensors.append(numpy_helper.from_array(np.array(number), place))
        self.nodes.append(helper.make_node("SequenceAt", [name, place], [element]))
        return self.give(element, kind.sequence_type.elem_type)

    def _ask(self, op_type: str, name: str, answer: int) -> Any:
        """Return what an operator makes of a value, which shapes alone decide."""
        asked = f"{name}/{op_type}"
        nodes = [*self.nodes, helper.make_node(op_type, [name], [asked])]
        result = helper.make_tensor_value_info(asked, answer, [])
        graph = simplify_model(_with(self.model, nodes, self.tensors, [result])).graph
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        sources = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Identity"}
        return numpy_helper.to_array(tensors[sources.get(asked, asked)])


def put_together(parts: Mapping[str, Any], found: Mapping[str, Any]) -> list[Any]:
    """Return a model's outputs, of its tensors."""
    return [
        [found[each] for each in part] if isinstance(part, list) else found.get(part)
        for part in parts.values()
    ]


def _with(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    tensors: Sequence[onnx.TensorProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Return a model with more nodes and constants, and other outputs."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.node.extend(nodes)
    result.graph.initializer.extend(tensors)
    del result.graph.output[:]
    result.graph.output.extend(outputs)
    return result
