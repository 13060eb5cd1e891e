"""Replace operators that ONNX defines as functions of others by their definitions."""

from __future__ import annotations

from typing import Final

import onnx
import onnx.inliner

from neocpu.frontend.expansions.writer import Graph
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.opsets.opset_raising import IR_VERSION, named
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

BODIES: Final = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
    }
)
"""Functions for which neither TVM nor we have a converter that is always right, or faster."""
_PREVIEW: Final = ("ai.onnx.preview", "FlexAttention")
_OURS: Final = "neocpu.written_out"
"""The domain of these definitions while they are functions of the model."""


def has_body(node: onnx.NodeProto) -> bool:
    """Return whether a node is replaced by ONNX's definition."""
    if node.domain in STANDARD_DOMAINS:
        statistics = node.op_type == "LayerNormalization" and any(node.output[1:])
        return statistics or node.op_type in BODIES
    return (node.domain, node.op_type) == _PREVIEW


def inline_bodies(model: onnx.ModelProto, known: Graph) -> onnx.ModelProto:
    """Return the model with ONNX's definitions in place of all nodes that `has_body` accepts.

    Raises
    ------
    UnsupportedError
        ONNX cannot write out a node.
    """
    skeleton = strip_weights(model)
    light, weights = skeleton.model, skeleton.weights
    versions = {o.domain: o.version for o in model.opset_import}
    for number, node in enumerate(light.graph.node):
        if not has_body(node):
            continue
        with named(f"write out {describe(node)}"):
            body = _body(node, known, versions)
        _set_defaults(node, versions)
        body.domain, body.name = _OURS, f"{node.op_type}_{number}"
        node.domain, node.op_type = body.domain, body.name
        light.functions.append(body)
    light.opset_import.append(onnx.helper.make_opsetid(_OURS, 1))
    with named("write out the model's functions"):
        inlined = onnx.inliner.inline_local_functions(light, convert_version=True)
    inlined.ir_version = IR_VERSION
    inputs = [value for value in inlined.graph.input if value.name not in weights]
    del inlined.graph.input[:]
    inlined.graph.input.extend(inputs)
    inlined.graph.initializer.extend(weights.values())
    imports = [each for each in inlined.opset_import if each.domain != _OURS]
    del inlined.opset_import[:]
    inlined.opset_import.extend(imports)
    return inlined


def _body(node: onnx.NodeProto, known: Graph, versions: dict[str, int]) -> onnx.FunctionProto:
    """Return the definition of one node."""
    version = versions[node.domain]
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    if schema.has_context_dependent_function:
        opsets = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        text = schema.get_context_dependent_function_with_opset_version(
            max(opsets), node.SerializeToString(), [_type(name, known) for name in node.input]
        )
    else:
        opsets = [v for v in schema.function_opset_versions if v <= version]
        text = schema.get_function_with_opset_version(max(opsets))
    return onnx.FunctionProto.FromString(text)


def _set_defaults(node: onnx.NodeProto, versions: dict[str, int]) -> None:
    """Write the default values of the attributes that a node omits."""
    schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _type(name: str, known: Graph) -> bytes:
    kind = onnx.TypeProto()
    if name:
        kind = onnx.helper.make_tensor_type_proto(known.types[name], known.shapes.get(name))
    return bytes(kind.SerializeToString())
