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


def gated_network(size):
    """Return depthwise convolutions, a gate and a few output channels after an eighth of a size."""
    rng = np.random.default_rng(0)
    shapes = {
        "a": (12, 3, 3, 3),
        "b": (12, 1, 5, 5),
        "c": (32, 12, 1, 1),
        "d": (32, 1, 5, 5),
        "e": (8, 32, 1, 1),
        "f": (32, 8, 1, 1),
        "g": (5, 32, 1, 1),
    }
    weights = {name: rng.standard_normal(s).astype(np.float32) / 4 for name, s in shapes.items()}
    node = onnx.helper.make_node
    conv = partial(node, "Conv", strides=[2, 2])
    wide = {"kernel_shape": [5, 5], "pads": [2] * 4}
    nodes = [
        conv(["x", "a"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        node("Relu", ["p"], ["q"]),
        conv(["q", "b"], ["r"], group=12, **wide),
        node("Conv", ["r", "c"], ["s"], kernel_shape=[1, 1]),
        conv(["s", "d"], ["t"], group=32, **wide),
        node("GlobalAveragePool", ["t"], ["u"]),
        node("Conv", ["u", "e"], ["v"], kernel_shape=[1, 1]),
        node("Relu", ["v"], ["w"]),
        node("Conv", ["w", "f"], ["m"], kernel_shape=[1, 1]),
        node("Sigmoid", ["m"], ["n"]),
        node("Mul", ["t", "n"], ["o"]),
        node("Conv", ["o", "g"], ["k"], kernel_shape=[1, 1]),
        node("Sigmoid", ["k"], ["y"]),
    ]
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "gated",
        [value("x", kind, (1, 3, *size))],
        [value("y", kind, (1, 5, *(each // 8 for each in size)))],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def with_free_sizes(network=small_network):
    """Return a network with a height and a width that it leaves open."""
    model = network((64, 64))
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((2, "h"), (3, "w")):
            dim = value.type.tensor_type.shape.dim[axis]
            dim.Clear()
            dim.dim_param = f"{value.name}_{name}"
    return model
