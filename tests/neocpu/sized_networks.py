"""Networks that take images of any height and width."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx


def small_network(size):
    """Return convolutions of several kinds, a pooling and a residual."""
    rng = np.random.default_rng(0)
    shapes = {"a": (16, 3, 3, 3), "b": (16, 1, 3, 3), "c": (32, 16, 1, 1), "d": (32, 32, 3, 3)}
    weights = {name: rng.standard_normal(s).astype(np.float32) / 4 for name, s in shapes.items()}
    conv = partial(onnx.helper.make_node, "Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [
        conv(["x", "a"], ["p"], strides=[2, 2]),
        onnx.helper.make_node("Relu", ["p"], ["q"]),
        conv(["q", "b"], ["r"], group=16),
        onnx.helper.make_node("Conv", ["r", "c"], ["s"], kernel_shape=[1, 1]),
        onnx.helper.make_node("MaxPool", ["s"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        conv(["t", "d"], ["u"]),
        onnx.helper.make_node("Add", ["u", "t"], ["y"]),
    ]
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    h, w = size
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [value("x", kind, (1, 3, h, w))],
        [value("y", kind, (1, 32, h // 4, w // 4))],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def with_free_sizes():
    """Return the network of `small_network` with a height and a width that it leaves open."""
    model = small_network((64, 64))
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((2, "h"), (3, "w")):
            dim = value.type.tensor_type.shape.dim[axis]
            dim.Clear()
            dim.dim_param = f"{value.name}_{name}"
    return model
