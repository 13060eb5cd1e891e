"""Blocks of today's networks, as PyTorch's exporter writes them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    floats,
    ints,
    make_model,
    random,
    relax_ops,
)


class Net:
    """A graph under construction: ``net.Op(inputs..., attr=...)`` appends a node."""

    def __init__(self, **inputs: np.ndarray) -> None:
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def const(self, array: np.ndarray | float) -> str:
        name = f"w{len(self.constants)}"
        self.constants[name] = np.asarray(array, getattr(array, "dtype", np.float32))
        return name

    def weight(self, *shape: int) -> str:
        fan_in = max(int(np.prod(shape[1:])), 1)
        return self.const(random(*shape, seed=len(self.constants)) / np.float32(np.sqrt(fan_in)))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=f"/{kind}_{len(self.nodes)}", **attrs)
        )
        return names[0] if outputs == 1 else names

    def conv(self, x: str, out: int, into: int, k: int, **attrs: Any) -> str:
        group = attrs.get("group", 1)
        pads = attrs.pop("pads", [k // 2] * 4)
        weight, bias = self.weight(out, into // group, k, k), self.weight(out)
        return self.op("Conv", x, weight, bias, kernel_shape=[k, k], pads=pads, **attrs)

    def check(self, *outputs: str, opset: int = 18) -> list[str]:
        model = make_model(self.nodes, self.inputs, self.constants, outputs, opset)
        return relax_ops(assert_matches_onnxruntime(model, self.inputs, rtol=1e-3, atol=1e-5))


def test_squeeze_and_excite_with_silu():
    net = Net(x=random(2, 8, 10, 10))
    y = net.conv("x", 16, 8, 3, strides=[2, 2])
    y = net.op("Mul", y, net.op("Sigmoid", y))
    s = net.op("ReduceMean", y, net.const(ints(2, 3)), keepdims=1)
    s = net.conv(s, 4, 16, 1)
    s = net.op("Mul", s, net.op("Sigmoid", s))
    s = net.op("HardSigmoid", net.conv(s, 16, 4, 1), alpha=1 / 6, beta=0.5)
    ops = net.check(net.op("Mul", y, s))
    assert ops.count("nn.conv2d") == 3


def test_convnext_block():
    """Depthwise 7x7, layer norm over channels last, erf GELU, layer scale."""
    net = Net(x=random(2, 12, 9, 9))
    y = net.conv("x", 12, 12, 7, group=12)
    y = net.op("Transpose", y, perm=[0, 2, 3, 1])
    y = net.op("LayerNormalization", y, net.weight(12), net.weight(12), axis=-1, epsilon=1e-6)
    y = net.op("Add", net.op("MatMul", y, net.weight(12, 48)), net.weight(48))
    erf = net.op("Erf", net.op("Div", y, net.const(np.float32(np.sqrt(2)))))
    y = net.op("Mul", net.op("Mul", y, net.op("Add", erf, net.const(1.0))), net.const(0.5))
    y = net.op("Add", net.op("MatMul", y, net.weight(48, 12)), net.weight(12))
    y = net.op("Mul", net.weight(12), y)
    y = net.op("Transpose", y, perm=[0, 3, 1, 2])
    ops = net.check(net.op("Add", "x", y))
    assert "nn.layer_norm" in ops


def test_decomposed_layer_norm():
    net = Net(x=random(2, 5, 5, 12))
    mean = net.op("ReduceMean", "x", net.const(ints(-1)))
    centred = net.op("Sub", "x", mean)
    variance = net.op("ReduceMean", net.op("Pow", centred, net.const(2.0)), net.const(ints(-1)))
    deviation = net.op("Sqrt", net.op("Add", variance, net.const(1e-6)))
    y = net.op("Mul", net.op("Div", centred, deviation), net.weight(12))
    assert "power" not in net.check(y)


def test_super_resolution_with_pixel_shuffle_and_prelu():
    net = Net(x=random(1, 3, 8, 6))
    y = net.op("PRelu", net.conv("x", 8, 3, 5), net.weight(8, 1, 1))
    y = net.op("DepthToSpace", net.conv(y, 12, 8, 3), blocksize=2, mode="CRD")
    up = net.op("Resize", "x", "", net.const(floats(1, 1, 2, 2)), mode="cubic")
    net.check(net.op("Add", y, up))


def test_pixel_shuffle_as_reshapes_of_computed_shape():
    net = Net(x=random(1, 12, 4, 5))
    shape = net.op("Shape", "x", start=2, end=4)
    double = net.op("Mul", shape, net.const(ints(2)))
    head = net.const(ints(1, 3))
    grid = net.op("Concat", head, net.const(ints(2, 2)), shape, axis=0)
    y = net.op("Transpose", net.op("Reshape", "x", grid), perm=[0, 1, 4, 2, 5, 3])
    y = net.op("Reshape", y, net.op("Concat", head, double, axis=0))
    assert net.check(net.op("Identity", y)) == ["reshape", "permute_dims", "reshape"]


def test_segmentation_head_with_dilation_and_transposed_convolution():
    net = Net(x=random(2, 6, 12, 12))
    branches = [
        net.op("Relu", net.conv("x", 4, 6, 3, dilations=[d, d], pads=[d] * 4)) for d in (1, 2, 4)
    ]
    pooled = net.conv(net.op("GlobalAveragePool", "x"), 4, 6, 1)
    size = net.op("Concat", net.const(ints(2, 4)), net.op("Shape", "x", start=2), axis=0)
    branches.append(net.op("Resize", pooled, "", "", size, mode="linear"))
    y = net.op("Concat", *branches, axis=1)
    up = net.op(
        "ConvTranspose", y, net.weight(16, 3, 4, 4), net.weight(3), strides=[2, 2], pads=[1] * 4
    )
    net.check(up, net.op("ArgMax", up, axis=1, keepdims=0))


def test_detector_with_two_inputs_and_three_outputs():
    net = Net(x=random(1, 3, 16, 16), bias=random(1, 8, 1, 1, seed=9))
    y = net.op("Add", net.conv("x", 8, 3, 3, strides=[2, 2]), "bias")
    y = net.op("Clip", y, net.const(0.0), net.const(6.0))
    a, b = net.op("Split", y, axis=1, num_outputs=2, outputs=2)
    a = net.op("MaxPool", a, kernel_shape=[5, 5], pads=[2] * 4, ceil_mode=0)
    b = net.op("HardSwish", b)
    y = net.op("Concat", a, b, axis=1)
    scores = net.op("Softmax", net.op("Flatten", net.conv(y, 4, 8, 1), axis=2), axis=1)
    boxes = net.op("Slice", y, net.const(ints(1)), net.const(ints(-1)), net.const(ints(2)))
    best, where = net.op("TopK", scores, net.const(ints(5)), outputs=2, axis=-1)
    net.check(best, where, boxes)


def test_channel_shuffle_and_grouped_convolution():
    net = Net(x=random(2, 8, 6, 6))
    y = net.op("Reshape", "x", net.const(ints(2, 2, 4, 6, 6)))
    y = net.op("Transpose", y, perm=[0, 2, 1, 3, 4])
    y = net.op("Reshape", y, net.const(ints(2, -1, 6, 6)))
    net.check(net.conv(y, 8, 8, 3, group=4))


@pytest.mark.parametrize("opset", [18, 20, 22])
def test_attention_over_a_feature_map(opset):
    net = Net(x=random(2, 8, 4, 4))
    y = net.op("Transpose", net.op("Reshape", "x", net.const(ints(2, 8, -1))), perm=[0, 2, 1])
    q, k, v = (net.op("MatMul", y, net.weight(8, 8)) for _ in range(3))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
    weights = net.op("Softmax", net.op("Mul", scores, net.const(np.float32(8**-0.5))), axis=-1)
    net.check(net.op("MatMul", weights, v), opset=opset)
