"""ONNX models of float32 tensors, from their nodes, shapes and weights."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shapes = Mapping[str, Sequence[int | str]]


def float_model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Shapes,
    outputs: Shapes,
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """Return a model with float32 inputs and outputs of these shapes."""
    ends = [
        [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end, shape in own.items()]
        for own in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(array, own) for own, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, *ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
