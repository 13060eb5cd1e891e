"""The constant tensors of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from neocpu.frontend.onnx_graph.weight_store import array_of


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return initializers and the results of Constant nodes with a tensor, by name."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[:1] and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found


def constant_of(node: onnx.NodeProto) -> np.ndarray[Any, Any]:
    """Return the value of a Constant node, in whichever attribute it is."""
    value = onnx.helper.get_attribute_value(node.attribute[0])
    if isinstance(value, onnx.TensorProto):
        return np.asarray(array_of(value))
    array = np.asarray(value)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
