"""Calibration by extremely small and large numbers fails with neocpu's own messages."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu


def convolution() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = np.ones(4, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="c")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e-42, 1e-38, 1e-26, 1e-20, 1e20, 1e37])
def test_data_of_any_size_quantise(size):
    data = (np.random.default_rng(0).standard_normal((4, 3, 8, 8)) * size).astype(np.float32)
    made = neocpu.quantize(convolution(), data)
    scales = [
        numpy_helper.to_array(each)
        for each in made.proto.graph.initializer
        if each.name.endswith("_scale")
    ]
    assert all(np.isfinite(scale).all() and (scale > 0).all() for scale in scales)
    neocpu.compile(made.proto, verify=False).close()
