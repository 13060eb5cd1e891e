"""One convolution, and an input for it."""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

IMAGE = np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)


def small_model() -> ModelProto:
    """Return a 3x3 convolution of `IMAGE` with a ReLU."""
    weights = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32) / 12
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
