"""A few blocks of a transformer, as exporters write them: the built-in networks have none."""

from __future__ import annotations

import math

import numpy as np
import onnx

TRANSFORMERS = ((192, 197), (384, 197), (768, 197), (96, 784), (256, 49))
"""Widths, and numbers of tokens."""
HEAD, BLOCKS, EXPANSION = 32, 2, 4


class _Writer:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str | float | list[int], **attributes: object) -> str:
        names = [
            each if isinstance(each, str) else self.weight(np.asarray(each, _type(each)))
            for each in inputs
        ]
        output = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def linear(self, x: str, width: int, out: int) -> str:
        scale = 1 / math.sqrt(width)
        weights = self.random.standard_normal((width, out), np.float32) * np.float32(scale)
        product = self.op("MatMul", x, self.weight(weights))
        return self.op("Add", product, self.weight(np.zeros(out, np.float32)))

    def norm(self, x: str, width: int) -> str:
        one, zero = np.ones(width, np.float32), np.zeros(width, np.float32)
        return self.op("LayerNormalization", x, self.weight(one), self.weight(zero), axis=-1)

    def attention(self, x: str, width: int, tokens: int) -> str:
        parts = []
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            heads = self.op("Reshape", self.linear(x, width, width), [1, tokens, -1, HEAD])
            parts.append(self.op("Transpose", heads, perm=order))
        scores = self.op("MatMul", parts[0], parts[1])
        shares = self.op("Softmax", self.op("Mul", scores, HEAD**-0.5), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, parts[2]), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", mixed, [1, tokens, width]), width, width)

    def gelu(self, x: str) -> str:
        both = self.op("Add", self.op("Erf", self.op("Div", x, math.sqrt(2))), 1.0)
        return self.op("Mul", self.op("Mul", x, both), 0.5)


def _type(value: object) -> type:
    return np.int64 if isinstance(value, list) else np.float32


def transformer(width: int, tokens: int) -> onnx.ModelProto:
    """Return `BLOCKS` blocks with these channels and tokens, and heads of `HEAD` channels."""
    write, x = _Writer(), "x"
    for _ in range(BLOCKS):
        x = write.op("Add", x, write.attention(write.norm(x, width), width, tokens))
        inner = write.gelu(write.linear(write.norm(x, width), width, EXPANSION * width))
        x = write.op("Add", x, write.linear(inner, EXPANSION * width, width))
    shape = [1, tokens, width]
    graph = onnx.helper.make_graph(
        write.nodes,
        "transformer",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, shape)],
        write.weights,
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
