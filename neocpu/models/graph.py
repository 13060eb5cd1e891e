"""A small language for describing networks, on top of ``onnx.helper``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET: Final = 20
IR_VERSION: Final = 9
BATCH_NORM_EPSILON: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Value:
    """A feature map in the making: its ONNX name and its channels."""

    name: str
    channels: int


class NetworkBuilder:
    """Emits the nodes and seeded weights of one network, named as PyTorch names modules.

    Weights are He-initialised for what feeds them, so that variance neither grows nor fades with
    depth whatever the batch norms' random statistics are: see `conv` and `batch_norm`.
    """

    def __init__(self, name: str, input_shape: Sequence[int], seed: int) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._input = helper.make_tensor_value_info("input", TensorProto.FLOAT, input_shape)
        self._batch = input_shape[0]
        self.input = Value("input", input_shape[1])

    def conv(
        self,
        x: Value,
        name: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
    ) -> Value:
        """Add a square convolution without bias.

        Its weights have the variance ``2 / fan_in``: the factor two makes up for the half of the
        signal that the ReLU on its input side cut.
        """
        fan_in = x.channels * kernel * kernel
        weight = self._normal((channels, x.channels, kernel, kernel), std=sqrt(2 / fan_in))
        return self._node(
            "Conv",
            [x.name, self._weight(f"{name}.weight", weight)],
            name,
            channels,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
            dilations=[1, 1],
            group=1,
        )

    def batch_norm(self, x: Value, name: str, *, gain: float = 1.0) -> Value:
        """Add a batch norm in inference mode, its statistics and affine scattered around identity.

        Parameters
        ----------
        gain : float
            Mean of the scale. Residual branches end with a small one: sums of full-size branches
            would double the variance with every block.
        """
        shape = (x.channels,)
        parameters = {
            "weight": self._uniform(shape, 0.8 * gain, 1.2 * gain),
            "bias": self._uniform(shape, -0.1, 0.1),
            "running_mean": self._uniform(shape, -0.1, 0.1),
            "running_var": self._uniform(shape, 0.8, 1.2),
        }
        inputs = [self._weight(f"{name}.{key}", array) for key, array in parameters.items()]
        return self._node(
            "BatchNormalization",
            [x.name, *inputs],
            name,
            x.channels,
            epsilon=BATCH_NORM_EPSILON,
        )

    def relu(self, x: Value, name: str) -> Value:
        """Add a ReLU."""
        return self._node("Relu", [x.name], name, x.channels)

    def add(self, x: Value, y: Value, name: str) -> Value:
        """Add a sum of two feature maps."""
        assert x.channels == y.channels
        return self._node("Add", [x.name, y.name], name, x.channels)

    def concat(self, values: Sequence[Value], name: str) -> Value:
        """Add a concatenation of channels; one value alone passes through."""
        if len(values) == 1:
            return values[0]
        channels = sum(value.channels for value in values)
        return self._node("Concat", [value.name for value in values], name, channels, axis=1)

    def max_pool(self, x: Value, name: str, kernel: int, *, stride: int, padding: int) -> Value:
        """Add a square max pooling."""
        return self._node(
            "MaxPool",
            [x.name],
            name,
            x.channels,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
            ceil_mode=0,
        )

    def average_pool(self, x: Value, name: str, kernel: int, *, stride: int) -> Value:
        """Add a square average pooling without padding."""
        return self._node(
            "AveragePool",
            [x.name],
            name,
            x.channels,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
        )

    def classifier(self, x: Value, name: str, classes: int) -> Value:
        """Add global average pooling and a dense layer with bias: ``(N, classes)`` comes out."""
        pooled = self._node("GlobalAveragePool", [x.name], "avgpool", x.channels)
        flat = self._node("Flatten", [pooled.name], "flatten", x.channels, axis=1)
        weight = self._normal((classes, x.channels), std=sqrt(1 / x.channels))
        inputs = [
            flat.name,
            self._weight(f"{name}.weight", weight),
            self._weight(f"{name}.bias", self._uniform((classes,), -0.1, 0.1)),
        ]
        return self._node("Gemm", inputs, name, classes, alpha=1.0, beta=1.0, transB=1)

    def finish(self, output: Value) -> onnx.ModelProto:
        """Return the model that computes ``output``, a ``(N, channels)`` matrix."""
        self._nodes[-1].output[0] = "output"
        assert self._nodes[-1].name == output.name.removesuffix("_output_0")
        shape = (self._batch, output.channels)
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [self._input],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
            self._weights,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="neocpu",
        )

    def _node(
        self, op: str, inputs: Sequence[str], name: str, channels: int, **attributes: Any
    ) -> Value:
        path = "/" + name.replace(".", "/") + f"/{op}"
        value = Value(f"{path}_output_0", channels)
        self._nodes.append(helper.make_node(op, inputs, [value.name], path, **attributes))
        return value

    def _weight(self, name: str, array: NDArray[np.float32]) -> str:
        self._weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def _normal(self, shape: tuple[int, ...], std: float) -> NDArray[np.float32]:
        values = self._rng.standard_normal(shape, np.float32)
        values *= np.float32(std)
        return values

    def _uniform(self, shape: tuple[int, ...], low: float, high: float) -> NDArray[np.float32]:
        return self._rng.uniform(low, high, shape).astype(np.float32)
