"""Small networks, and their forms by ONNX Runtime's quantiser."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SHAPE = (2, 3, 17, 19)


class Weights:
    """Random initializers, by their names."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        scaled = self._rng.standard_normal(shape) * np.sqrt(2 / fan_in)
        self.arrays[name] = scaled.astype(np.float32)
        return name


def network(seed: int = 0) -> onnx.ModelProto:
    """Return a residual block, a pooling, a concatenation and a classifier, of awkward sizes."""
    weights, nodes = Weights(seed), []

    def conv(x: str, y: str, shape: Sequence[int], relu: bool = True, **attributes: object) -> str:
        inputs = [x, weights.add(f"w_{y}", *shape), weights.add(f"b_{y}", shape[0])]
        made = f"{y}_sum" if relu else y
        nodes.append(helper.make_node("Conv", inputs, [made], name=f"conv_{y}", **attributes))
        if relu:
            nodes.append(helper.make_node("Relu", [made], [y]))
        return y

    same = {"pads": [1, 1, 1, 1]}
    stem = conv("x", "stem", (20, 3, 3, 3), strides=[2, 1], pads=[1, 0, 2, 1])
    nodes.append(
        helper.make_node("MaxPool", [stem], ["pool"], kernel_shape=[3, 3], strides=[1, 2], **same)
    )
    left = conv("pool", "left", (37, 20, 3, 3), **same)
    right = conv(left, "right", (20, 37, 1, 1), relu=False)
    nodes.append(helper.make_node("Add", [right, "pool"], ["sum"]))
    nodes.append(helper.make_node("Relu", ["sum"], ["block"]))
    other = conv("block", "other", (24, 20, 3, 3), relu=False, dilations=[2, 1], pads=[2, 1, 2, 1])
    nodes.append(helper.make_node("Concat", ["block", other], ["both"], axis=1))
    last = conv("both", "last", (16, 44, 1, 1), strides=[2, 2])
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", weights.add("w", 16, 10)], ["y"], name="fc"))
    return _model(nodes, weights.arrays)


def network_in_groups(seed: int = 0) -> onnx.ModelProto:
    """Return inverted residuals with depthwise convolutions and grouped ones, of awkward sizes."""
    weights, nodes = Weights(seed), []

    def conv(x: str, y: str, shape: Sequence[int], **attributes: object) -> str:
        inputs = [x, weights.add(f"w_{y}", *shape), weights.add(f"b_{y}", shape[0])]
        nodes.append(helper.make_node("Conv", inputs, [y], name=f"conv_{y}", **attributes))
        return y

    def clipped(x: str) -> str:
        nodes.append(helper.make_node("Clip", [x, "low", "high"], [f"{x}_6"]))
        return f"{x}_6"

    same = {"pads": [1, 1, 1, 1]}
    weights.arrays |= {"low": np.float32(0), "high": np.float32(6)}
    stem = clipped(conv("x", "stem", (20, 3, 3, 3), strides=[2, 1], pads=[1, 0, 2, 1]))
    wide = clipped(conv(stem, "wide", (45, 20, 1, 1)))
    each = clipped(conv(wide, "each", (45, 1, 3, 3), group=45, **same))
    narrow = conv(each, "narrow", (20, 45, 1, 1))
    nodes.append(helper.make_node("Add", [stem, narrow], ["sum"]))
    # Both signs occur: the padding is a zero point.
    far = conv("sum", "far", (20, 1, 5, 5), group=20, strides=[2, 2], pads=[2, 1, 1, 2])
    pairs = clipped(conv(far, "pairs", (20, 2, 3, 3), group=10, **same))
    nodes.append(
        helper.make_node("AveragePool", [pairs], ["means"], kernel_shape=[3, 2], pads=[1, 0, 1, 1])
    )
    halves = conv("means", "halves", (24, 10, 1, 1), group=2)
    nodes.append(helper.make_node("GlobalAveragePool", [halves], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", weights.add("w", 24, 10)], ["y"], name="fc"))
    return _model(nodes, weights.arrays)


def wide_network() -> onnx.ModelProto:
    """Return a residual block of two 3x3 convolutions of whole vectors of channels."""
    weights, nodes, same = Weights(), [], {"pads": [1, 1, 1, 1]}
    for x, y, ins in (("x", "stem", 3), ("stem", "first", 32), ("first", "second", 32)):
        inputs = [x, weights.add(f"w_{y}", 32, ins, 3, 3), weights.add(f"b_{y}", 32)]
        nodes.append(helper.make_node("Conv", inputs, [f"{y}_sum"], name=f"conv_{y}", **same))
        if y != "second":
            nodes.append(helper.make_node("Relu", [f"{y}_sum"], [y]))
    nodes.append(helper.make_node("Add", ["second_sum", "stem"], ["sum"]))
    nodes.append(helper.make_node("Relu", ["sum"], ["y"]))
    return _model(nodes, weights.arrays)


def sliced_network() -> onnx.ModelProto:
    """Return a convolution, slices of its channels, their concatenation and a convolution."""
    weights = Weights()
    conv = helper.make_node("Conv", ["x", weights.add("w_a", 40, 3, 3, 3)], ["a"], name="conv_a")
    parts = []
    for name, start, end in (("left", 8, 24), ("right", 24, 40)):
        bounds = zip(("first", "end", "axis"), (start, end, 1), strict=True)
        weights.arrays |= {f"{name}_{key}": np.array([value], np.int64) for key, value in bounds}
        inputs = ["a", *(f"{name}_{key}" for key in ("first", "end", "axis"))]
        parts.append(helper.make_node("Slice", inputs, [name]))
    joined = helper.make_node("Concat", ["left", "right"], ["both"], axis=1)
    last = helper.make_node("Conv", ["both", weights.add("w_y", 7, 32, 3, 3)], ["y"], name="conv_y")
    return _model([conv, *parts, joined, last], weights.arrays)


def split_network() -> onnx.ModelProto:
    """Return `sliced_network` with a split, and with padding before the last convolution."""
    model = sliced_network()
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(values, np.int64), name)
        for name, values in (("sizes", [8, 16, 16]), ("pads", [0, 0, 1, 2, 0, 0, 0, 1]))
    )
    conv, *_, joined, last = model.graph.node
    last.input[0] = "padded"
    split = helper.make_node("Split", ["a", "sizes"], ["rest", "left", "right"], axis=1)
    pad = helper.make_node("Pad", ["both", "pads"], ["padded"], name="pad")
    nodes = [conv, split, joined, pad, last]
    del model.graph.node[:], model.graph.value_info[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    return onnx.shape_inference.infer_shapes(model)


def _model(nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


class _Images(CalibrationDataReader):
    def __init__(self, count: int) -> None:
        self._feeds = iter([{"x": image(seed)} for seed in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def quantised(
    model: onnx.ModelProto,
    *,
    activations: QuantType = QuantType.QUInt8,
    form: QuantFormat = QuantFormat.QDQ,
    **options: object,
) -> onnx.ModelProto:
    """Return a model after ONNX Runtime's static quantisation."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantised.onnx"
        quantize_static(
            model,
            path,
            _Images(4),
            quant_format=form,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            **options,
        )
        return onnx.load(path)


def run_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Run a model without fusion, so that values are rounded exactly where the model says so."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def last_step(model: onnx.ModelProto) -> float:
    """Return the scale of a model's output."""
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    (last,) = (each for each in model.graph.node if each.output[0] == model.graph.output[0].name)
    return float(arrays[last.input[1]])
