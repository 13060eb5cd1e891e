"""A quantised model whose tensors are visible, whole or cut where they are quantised.

Rounding to integers may break a tie either way, because float32 sums depend on their order, and a
step of difference goes through all later layers. So layers are compared separately: `cut` makes
each quantised tensor an input as well. Every layer then computes from the reference's integers, and
no difference reaches another layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_RESULTS = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QGemm": 7,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QLinearAveragePool": 3,
    "QLinearConcat": 0,
    "QLinearGlobalAveragePool": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSigmoid": 3,
    "QLinearSoftmax": 3,
}
"""The number of the input with an operator's result scale; the zero point follows it."""

_FOUND_AT_RUN_TIME = "DynamicQuantizeLinear"


@dataclass(frozen=True, slots=True)
class Quantised:
    """A tensor of integers that a model computes from its inputs.

    A cut model reads the tensors ``given`` instead: the integers, and others found with them.
    ``real`` is rounded, if the model has it, and the output ``visible`` shows it in steps of
    ``scale``: one number, or a vector along ``axis``.
    """

    name: str
    given: tuple[str, ...]
    real: str
    visible: str
    scale: np.ndarray
    axis: int = 0

    def steps(self, values: np.ndarray) -> np.ndarray:
        spread = np.ones(values.ndim, int)
        if self.scale.size > 1:
            spread[self.axis] = self.scale.size
        return values.astype(np.float64) / self.scale.astype(np.float64).reshape(spread)


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    found = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def make_visible(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Quantised]]:
    """Return a copy with further outputs: the real numbers of each quantised tensor."""
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    values, tensors = constants(model), []
    for node in _computed(model):
        name = node.output[0]
        if node.op_type == _FOUND_AT_RUN_TIME:
            tensors.append(Quantised(name, tuple(node.output), node.input[0], name, np.ones(1)))
            seen.graph.output.append(helper.make_tensor_value_info(name, TensorProto.UINT8, None))
        elif node.op_type in _RESULTS:
            place, visible = _RESULTS[node.op_type], f"{name}_visible"
            real = node.input[0] if node.op_type == "QuantizeLinear" else ""
            scale = values[node.input[place]]
            axis = {each.name: each.i for each in node.attribute if each.name == "axis"}
            along = axis.get("axis", 1) if scale.size > 1 else 0
            tensors.append(Quantised(name, (name,), real, visible, scale, along))
            shown = [name, *node.input[place : place + 2]]
            domain = node.domain if node.op_type == "QuantizeLinear" else ""
            made = helper.make_node("DequantizeLinear", shown, [visible], domain=domain, **axis)
            seen.graph.node.append(made)
            value = helper.make_tensor_value_info(visible, TensorProto.FLOAT, None)
            seen.graph.output.append(value)
    return seen, tensors


def _computed(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that depend on the inputs."""
    constant = {each.name for each in model.graph.initializer}
    known = {value.name for value in model.graph.input} - constant
    for node in model.graph.node:
        if known.intersection(node.input):
            known.update(node.output)
            yield node


def cut(
    visible: onnx.ModelProto, tensors: Sequence[Quantised], found: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Return a copy of a visible model that reads the tensors ``given``, suffixed ``_given``, as
    inputs.
    """
    made = onnx.ModelProto()
    made.CopyFrom(visible)
    shown = {tensor.visible for tensor in tensors}
    names = {name: f"{name}_given" for tensor in tensors for name in tensor.given}
    for node in made.graph.node:
        if node.output[0] not in shown:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)
    for name, given in names.items():
        kind = helper.np_dtype_to_tensor_dtype(found[name].dtype)
        made.graph.input.append(helper.make_tensor_value_info(given, kind, found[name].shape))
    return with_shapes(made, found)


def with_shapes(model: onnx.ModelProto, found: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a copy that states the shapes of its outputs, as onnx's checker requires."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.output:
        kind = value.type.tensor_type.elem_type
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, found[value.name].shape))
    return made


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a copy that returns tensors of any type, for ONNX Runtime."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    present = {value.name for value in made.graph.output}
    made.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in present
    )
    return made
