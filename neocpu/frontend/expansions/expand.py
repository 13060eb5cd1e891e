"""Write operators without a converter as operators that have one, or by ONNX's definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import onnx
import onnx.inliner

from neocpu.frontend.expansions import einsum, formulas, plain_forms, windows
from neocpu.frontend.expansions.plain_forms import drop_empty
from neocpu.frontend.expansions.writer import Graph, Writer, prefixed, refusal
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.opsets.opset_raising import IR_VERSION, named
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.source import first_line
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe, node_name

BODIES: Final = frozenset(
    """
    Attention BlackmanWindow CausalConvWithState CenterCropPad HammingWindow HannWindow
    LinearAttention NegativeLogLikelihoodLoss RotaryEmbedding SoftmaxCrossEntropyLoss SwiGLU
    """.split()
)
"""Functions for which neither TVM nor we have a converter that is always right, or faster."""
_PREVIEW: Final = ("ai.onnx.preview", "FlexAttention")
_OURS: Final = "neocpu.written_out"
"""The domain of these definitions while they are functions of the model."""


def has_body(node: onnx.NodeProto) -> bool:
    if node.domain in STANDARD_DOMAINS:
        statistics = node.op_type == "LayerNormalization" and any(node.output[1:])
        return statistics or node.op_type in BODIES
    return (node.domain, node.op_type) == _PREVIEW


def inline_bodies(model: onnx.ModelProto, known: Graph) -> onnx.ModelProto:
    """Return the model with ONNX's definitions in place of nodes of `has_body`.

    Raises UnsupportedError if ONNX cannot write one out.
    """
    light = strip_weights(model)
    written = light.model
    versions = {o.domain: o.version for o in model.opset_import}
    for number, node in enumerate(written.graph.node):
        if not has_body(node):
            continue
        with named(f"write out {describe(node)}"):
            body = _body(node, known, versions)
        _set_defaults(node, versions)
        body.domain, body.name = _OURS, f"{node.op_type}_{number}"
        node.domain, node.op_type = body.domain, body.name
        written.functions.append(body)
    written.opset_import.append(onnx.helper.make_opsetid(_OURS, 1))
    with named("write out the model's functions"):
        inlined = onnx.inliner.inline_local_functions(written, convert_version=True)
    light.restore(inlined)
    inlined.ir_version = IR_VERSION
    imports = [each for each in inlined.opset_import if each.domain != _OURS]
    del inlined.opset_import[:]
    inlined.opset_import.extend(imports)
    return inlined


def _body(node: onnx.NodeProto, known: Graph, versions: dict[str, int]) -> onnx.FunctionProto:
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


EXPANSIONS: Final[Mapping[str, Callable[[Writer], None]]] = {
    **einsum.EXPANSIONS,
    **formulas.EXPANSIONS,
    **plain_forms.EXPANSIONS,
    **windows.EXPANSIONS,
}
"""The expansion of each operator. It writes nothing if the node is better left to its converter."""
WRITTEN_OUT: Final = BODIES | EXPANSIONS.keys()  # a model may have them, but no imported graph


def expand_operators(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a simplified model with such nodes written as others, None if it has none, or raise an
    UnsupportedError that names a node of a form that cannot be written as others.
    """
    graph = model.graph
    known = Graph(
        shapes=known_shapes(graph),
        types=_types(graph),
        constants=constant_tensors(graph),
        makers={name: node for node in graph.node for name in node.output},
        results={value.name for value in graph.output},
    )
    if any(map(has_body, graph.node)):
        return inline_bodies(model, known)
    prefix = prefixed(graph, "expanded_")
    written = [_expanded(node, known, f"{prefix}{i}_") for i, node in enumerate(graph.node)]
    if not any(writer.wrote for writer in written):
        return None
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for writer in written:  # the entries of tensors stay, because some remain
        result.graph.node.extend(writer.nodes if writer.wrote else [writer.node])
        result.graph.initializer.extend(writer.tensors)
    return result


def _expanded(node: onnx.NodeProto, known: Graph, prefix: str) -> Writer:
    writer = Writer(prefix, node_name(node), node=node, graph=known)
    expand = EXPANSIONS.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
    try:
        drop_empty(writer)
        if expand is not None and not writer.wrote:
            expand(writer)
    except (ValueError, KeyError, IndexError) as error:
        raise refusal(node, first_line(error)) from error
    return writer


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.output, *graph.input):
        types[value.name] = value.type.tensor_type.elem_type
    return types
