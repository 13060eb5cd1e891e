"""A model of pictures with obvious answers: the means of their colours."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def means_model(side: int = 16, batch: int | str = 1, scale: float = 2) -> onnx.ModelProto:
    """Return a model of ``x``, batches of pictures: ``y`` is ``scale`` times each colour's mean."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["y"]),
        ],
        "means",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, 3, side, side))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (batch, 3))],
        [numpy_helper.from_array(np.float32(scale) * np.eye(3, dtype="float32"), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
