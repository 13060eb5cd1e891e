"""Shapes and types of custom operators' outputs, which ONNX cannot infer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.helper import make_tensor_value_info, np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

from neocpu.frontend.control_flow.loop_nodes import declared, kinds_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.rewrites import is_standard
from neocpu.frontend.unsupported import OWN_DOMAIN, node_name
from neocpu.ir.custom_operators.registry import find_operator


def infer_custom(inferred: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return unknown outputs of custom operators, and ours; `UnsupportedError` if one fails."""
    graph = inferred.graph
    ours: list[onnx.ValueInfoProto] = []
    if any(node.domain == OWN_DOMAIN for node in graph.node):
        ours = list(declared(graph.node, kinds_of(graph)))
    custom = [
        (node, operator)
        for node in graph.node
        if (operator := find_operator(node.domain, node.op_type)) is not None
    ]
    ours += _unpooled(graph)
    if ours or not custom:
        return ours
    # Imported here, because without a custom operator TVM is not needed yet.
    from neocpu.ir.custom_operators.lowering import TensorType, attributes_of, output_types

    types = {
        name: TensorType(tensor_dtype_to_np_dtype(kind.element).name, kind.shape)
        for name, kind in kinds_of(graph).items()
    }
    found = []
    for node, operator in custom:
        given = [name for name in node.input if name]
        if not all(name in types for name in given) or all(o in types for o in node.output if o):
            continue
        inputs = [types[name] if name else None for name in node.input]
        made = output_types(operator, node_name(node), inputs, attributes_of(node))
        if len(made) < len(node.output):
            few = ValueError(f"it makes {len(made)} outputs, the node has {len(node.output)}")
            raise operator.failure(node_name(node), few)
        for name, each in zip(node.output, made, strict=False):
            types[name] = each
            found.append(
                make_tensor_value_info(
                    name, np_dtype_to_tensor_dtype(np.dtype(each.dtype)), each.shape
                )
            )
    return [value for value in found if value.name]


def _unpooled(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the outputs of MaxUnpool with a constant shape, which ONNX ignores."""
    nodes = [node for node in graph.node if is_standard(node, "MaxUnpool") and len(node.input) > 2]
    if not nodes:
        return []
    constants, kinds = constant_tensors(graph), kinds_of(graph)
    return [
        make_tensor_value_info(
            node.output[0],
            kinds[node.input[0]].element,
            array_of(constants[node.input[2]]).tolist(),
        )
        for node in nodes
        if node.output[0] not in kinds
        if node.input[0] in kinds and node.input[2] in constants
    ]


def declare(graph: onnx.GraphProto, values: Sequence[onnx.ValueInfoProto]) -> None:
    outputs = {value.name: value for value in graph.output}
    for value in values:
        if value.name in outputs:
            outputs[value.name].CopyFrom(value)
        else:
            graph.value_info.append(value)
