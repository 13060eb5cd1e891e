"""The tensors of a graph that are known before it runs."""

from __future__ import annotations

import onnx


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return initializers and the results of Constant nodes, by name."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[:1] and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found
