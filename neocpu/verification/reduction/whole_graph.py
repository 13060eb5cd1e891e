"""A model with the types and values of its tensors, and parts of it as models of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import helper

from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.control_flow.bodies import free_names
from neocpu.frontend.onnx_graph.subgraphs import all_nodes
from neocpu.frontend.onnx_graph.weightless_model import check_model, infer_shapes
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.static_shapes import fix_inputs, real_inputs, tensor_spec
from neocpu.frontend.shapes.structural_inputs import structural_inputs
from neocpu.quantiser.observation import with_outputs
from neocpu.verification.reference.onnxruntime_oracle import run_onnxruntime
from neocpu.verification.reference.runner import run_reference

Array: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = Mapping[str, Array]

_UNTIDY: Final = ("doc_string", "metadata_props")
"""Fields of nodes and functions in which exporters write lines of the user's source code."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and inputs to run it on."""

    model: onnx.ModelProto
    inputs: Arrays

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(node.op_type for node in self.model.graph.node)


@dataclass(frozen=True, slots=True)
class WholeGraph:
    """A model with static inputs, which `part` can cut anywhere.

    `types` has the tensors of known type and shape. `values` has their values in a run, or only the
    inputs if nothing can run the model.
    """

    model: onnx.ModelProto
    types: Mapping[str, onnx.ValueInfoProto]
    values: Arrays

    @classmethod
    def of(cls, model: onnx.ModelProto, inputs: Arrays) -> WholeGraph:
        """Infer the types of a model's tensors, and run it for their values, if anything can."""
        types = {value.name: value for value in inferred_types(model)}
        values = {**_run(model, inputs), **inputs}
        for name, array in values.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            types[name] = helper.make_tensor_value_info(name, kind, array.shape)
        return cls(model, types, values)

    def part(self, kept: Sequence[int], name: str) -> Case | None:
        """Return some of the nodes as a model: tensors that they read from others are its inputs.

        A tensor that decides a shape is a constant instead, with its value in the run. Outputs are
        those of the whole model, and tensors that no node reads. ``kept`` are ascending positions.
        The result is None for a part without outputs, an invalid one, or an input of unknown type.
        """
        graph = self.model.graph
        nodes = [_tidy(graph.node[position]) for position in kept]
        made = {name: None for node in nodes for name in node.output if name}
        read = {name: None for node in nodes for name in _reads(node)}
        constants = [tensor for tensor in graph.initializer if tensor.name in read]
        fixed = {tensor.name for tensor in constants}
        free = [name for name in read if name not in made and name not in fixed]
        results = {value.name for value in graph.output}
        alive = results.union(*(_reads(node) for node in graph.node))
        ends = [n for n in made if n in alive and (n not in read or n in results)]
        if not ends or any(name not in self.types for name in free):
            return None
        model = onnx.ModelProto(
            ir_version=self.model.ir_version,
            opset_import=self.model.opset_import,
            functions=[_tidy_function(each) for each in self.model.functions],
            producer_name="neocpu",
            graph=onnx.GraphProto(
                name=name,
                node=nodes,
                input=[self.types[name] for name in free],
                output=[self._type(name) for name in ends],
                initializer=constants,
            ),
        )
        given = {value.name for value in real_inputs(graph)}
        shaping = structural_inputs(model) - given
        fix_inputs(model.graph, {n: self.values[n] for n in shaping if n in self.values})
        return self._case(model)

    def _type(self, name: str) -> onnx.ValueInfoProto:
        unknown = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        return self.types.get(name, unknown)

    def _case(self, model: onnx.ModelProto) -> Case | None:
        try:
            check_model(model)
        except onnx.checker.ValidationError:
            return None
        inputs = real_inputs(model.graph)
        unknown = [tensor_spec(value) for value in inputs if value.name not in self.values]
        values = {**random_inputs(unknown, seed=0), **self.values}
        return Case(model, {value.name: values[value.name] for value in inputs})


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Return the tensors that a node reads, also those that its branches or bodies read outside."""
    return free_names([node], (), ())


def _tidy(node: onnx.NodeProto) -> onnx.NodeProto:
    own = onnx.NodeProto()
    own.CopyFrom(node)
    _clear(all_nodes([own]))
    return own


def _tidy_function(function: onnx.FunctionProto) -> onnx.FunctionProto:
    own = onnx.FunctionProto()
    own.CopyFrom(function)
    _clear([own, *all_nodes(own.node)])
    return own


def _clear(messages: Iterable[onnx.NodeProto | onnx.FunctionProto]) -> None:
    for message in messages:
        for field in _UNTIDY:
            message.ClearField(field)


def inferred_types(model: onnx.ModelProto) -> Iterable[onnx.ValueInfoProto]:
    """Return the tensors whose type and shape onnx can infer."""
    try:
        light = infer_shapes(model, data_prop=True)
    except Exception:  # its C++ code has exceptions of its own
        light = model
    known = known_shapes(light.graph)
    values = (*light.graph.value_info, *light.graph.output, *light.graph.input)
    return [value for value in values if value.name in known and value.type.tensor_type.elem_type]


def _run(model: onnx.ModelProto, inputs: Arrays) -> dict[str, Array]:
    made = (name for node in model.graph.node for name in node.output if name)
    seen = with_outputs(model, [value.name for value in model.graph.output], made)
    for run in (run_reference, lambda *given: run_onnxruntime(*given, optimised=False)):
        try:
            with np.errstate(all="ignore"):
                found = run(seen, inputs)
        except Exception:  # an evaluator raises whatever numpy does
            continue
        return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}
    return {}
