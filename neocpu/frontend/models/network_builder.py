"""Describe networks in layers, named as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.frontend.models.emitter import (
    Emitter,
    Extents,
    Value,
    Windows,
    adaptive_windows,
    gaussian_power,
    pair,
)

__all__ = ["Extents", "NetworkBuilder", "Value", "numbered"]

BATCH_NORM_EPSILON: Final = 1e-5
# A gate is about one half, and so is the share that it passes.
GATE: Final = 0.5
# Standard deviation of a gate's input: small enough that gates stay near one half.
GATE_INPUT: Final = 0.25
# Share of a ReLU's mean square that is the square of its mean, which averaging keeps.
MEAN_SHARE: Final = 0.4


def numbered(name: str, first: int = 0) -> tuple[str, str, str]:
    """Return the names of a convolution, a batch norm and an activation in a Sequential."""
    return f"{name}.{first}", f"{name}.{first + 1}", f"{name}.{first + 2}"


class NetworkBuilder(Emitter):
    """Adds layers with PyTorch's names of modules; each method returns the layer's output.

    Weights are scaled by the layer's input, as in He's initialisation, so that variance neither
    grows nor fades with depth, whatever the batch norms' random statistics are. The scale of each
    input is estimated layer by layer; see `Value`.
    """

    def conv(
        self,
        x: Value,
        name: str,
        channels: int,
        kernel: Extents,
        *,
        stride: Extents = 1,
        padding: Extents = 0,
        groups: int = 1,
        bias: bool | NDArray[np.float32] = False,
        gain: float = 1.0,
    ) -> Value:
        """Add a convolution to outputs of the deviation ``gain``; a bias is random or given."""
        assert x.channels % groups == 0
        assert channels % groups == 0
        windows = Windows.of(kernel, stride, padding)
        shape = (channels, x.channels // groups, *windows.kernel)
        weight = self.normal(shape, gain**2 / (prod(shape[1:]) * x.power))
        inputs: list[Value | str] = [x, self.constant(f"{name}.weight", weight)]
        if isinstance(bias, np.ndarray):
            inputs.append(self.constant(f"{name}.bias", bias))
        elif bias:
            inputs.append(self._bias(name, channels))
        return self.node(
            "Conv",
            inputs,
            name,
            (x.batch, channels, *windows.over(x.image)),
            spread=gain**2,
            kernel_shape=windows.kernel,
            strides=windows.stride,
            pads=windows.padding * 2,
            dilations=(1, 1),
            group=groups,
        )

    def conv_transpose(
        self,
        x: Value,
        name: str,
        channels: int,
        kernel: Extents,
        *,
        stride: Extents,
        padding: Extents = 0,
    ) -> Value:
        windows = Windows.of(kernel, stride, padding)
        shape = (x.channels, channels, *windows.kernel)
        # Only every stride-th tap meets a pixel.
        taps = x.channels * prod(windows.kernel) / prod(windows.stride)
        weight = self.normal(shape, 1 / (taps * x.power))
        image = tuple(
            (size - 1) * s - 2 * p + k
            for size, s, p, k in zip(
                x.image, windows.stride, windows.padding, windows.kernel, strict=True
            )
        )
        return self.node(
            "ConvTranspose",
            [x, self.constant(f"{name}.weight", weight), self._bias(name, channels)],
            name,
            (x.batch, channels, *image),
            kernel_shape=windows.kernel,
            strides=windows.stride,
            pads=windows.padding * 2,
        )

    def batch_norm(
        self, x: Value, name: str, *, gain: float = 1.0, epsilon: float = BATCH_NORM_EPSILON
    ) -> Value:
        """Add a batch norm for inference, with random statistics and parameters near identity.

        The gain is the mean of the scale. Residual branches end with a small one, because sums of
        full-size branches would double the variance with every block.
        """
        shape = (x.channels,)
        weight = self.uniform(shape, 0.8 * gain, 1.2 * gain)
        bias, mean = (self.uniform(shape, -0.1, 0.1) for _ in range(2))
        variance = self.uniform(shape, 0.8, 1.2)
        scale = weight / np.sqrt(variance + epsilon)
        keys = ("weight", "bias", "running_mean", "running_var")
        arrays = zip(keys, (weight, bias, mean, variance), strict=True)
        return self.node(
            "BatchNormalization",
            [x, *(self.constant(f"{name}.{key}", array) for key, array in arrays)],
            name,
            x.shape,
            spread=x.spread * _power(scale) + _power(bias - mean * scale),
            rectified=x.rectified * _power(scale),
            epsilon=epsilon,
        )

    def conv_norm(
        self,
        x: Value,
        conv: str,
        norm: str,
        channels: int,
        kernel: Extents,
        *,
        stride: Extents = 1,
        padding: Extents | None = None,
        groups: int = 1,
        gain: float = 1.0,
        epsilon: float = BATCH_NORM_EPSILON,
    ) -> Value:
        """Add a convolution and a batch norm, by default with padding that keeps the image."""
        if padding is None:
            height, width = pair(kernel)
            padding = height // 2, width // 2
        x = self.conv(x, conv, channels, kernel, stride=stride, padding=padding, groups=groups)
        return self.batch_norm(x, norm, gain=gain, epsilon=epsilon)

    def layer(
        self,
        x: Value,
        names: Iterable[str],
        channels: int,
        kernel: Extents,
        *,
        activation: Callable[[NetworkBuilder, Value, str], Value] | None = None,
        **options: Any,
    ) -> Value:
        """Add `conv_norm` and an activation, by default a ReLU, under these three names."""
        conv, norm, last = names
        x = self.conv_norm(x, conv, norm, channels, kernel, **options)
        return (activation or NetworkBuilder.relu)(self, x, last)

    def dense(self, x: Value, name: str, units: int) -> Value:
        """Add a dense layer with bias, ``(N, C)`` to ``(N, units)``."""
        values = self.normal((units, x.channels), 1 / (x.channels * x.power))
        inputs: list[Value | str] = [x, self.constant(f"{name}.weight", values)]
        inputs.append(self._bias(name, units))
        return self.node("Gemm", inputs, name, (x.batch, units), alpha=1.0, beta=1.0, transB=1)

    def classifier(self, x: Value, name: str, classes: int) -> Value:
        """Add global average pooling and a dense layer with an output of ``(N, classes)``."""
        pooled = self.global_average_pool(x, "avgpool")
        return self.dense(self.flatten(pooled, "flatten"), name, classes)

    def relu(self, x: Value, name: str) -> Value:
        return self._rectifier("Relu", [x], name, x)

    def relu6(self, x: Value, name: str) -> Value:
        low = self.constant(f"{name}.min", np.array(0, np.float32))
        high = self.constant(f"{name}.max", np.array(6, np.float32))
        return self._rectifier("Clip", [x, low, high], name, x)

    def leaky_relu(self, x: Value, name: str, slope: float) -> Value:
        return self._rectifier("LeakyRelu", [x], name, x, alpha=slope)

    def hard_swish(self, x: Value, name: str) -> Value:
        """Add ``x * hard_sigmoid(x)``."""
        spread = gaussian_power(lambda v: v * np.clip(v / 6 + 0.5, 0, 1), x.power)
        return self.node("HardSwish", [x], name, x.shape, spread=spread)

    def silu(self, x: Value, name: str) -> Value:
        """Add ``x * sigmoid(x)``."""
        spread = gaussian_power(lambda v: v / (1 + np.exp(-v)), x.power)
        return self.node("Mul", [x, self.sigmoid(x, name)], name, x.shape, spread=spread)

    def sigmoid(self, x: Value, name: str) -> Value:
        return self.node("Sigmoid", [x], name, x.shape, spread=0.0, rectified=GATE**2)

    def hard_sigmoid(self, x: Value, name: str) -> Value:
        """Add PyTorch's hard sigmoid, ``relu6(x + 3) / 6``."""
        share = GATE**2
        return self.node(
            "HardSigmoid", [x], name, x.shape, spread=0.0, rectified=share, alpha=1 / 6, beta=0.5
        )

    def softmax(self, x: Value, name: str, axis: int) -> Value:
        return self.node("Softmax", [x], name, x.shape, axis=axis)

    def squeeze_excitation(
        self, x: Value, name: str, squeezed: int, *, swish: bool = False
    ) -> Value:
        """Add a gate for each channel from all averages; ``swish`` is for EfficientNet."""
        y = self.global_average_pool(x, f"{name}.avgpool")
        y = self.conv(y, f"{name}.fc1", squeezed, 1, bias=True)
        y = self.silu(y, f"{name}.activation") if swish else self.relu(y, f"{name}.activation")
        y = self.conv(y, f"{name}.fc2", x.channels, 1, bias=True, gain=GATE_INPUT)
        gate = self.sigmoid if swish else self.hard_sigmoid
        return self._scaled("Mul", [gate(y, f"{name}.scale_activation"), x], name, x, GATE)

    def add(self, x: Value, y: Value, name: str) -> Value:
        assert x.shape == y.shape
        spread, rectified = x.spread + y.spread, x.rectified + y.rectified
        return self.node("Add", [x, y], name, x.shape, spread=spread, rectified=rectified)

    def concat(self, values: Sequence[Value], name: str, axis: int = 1) -> Value:
        """Add a concatenation; a single value is returned as it is."""
        if len(values) == 1:
            return values[0]
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        shares = [(value, value.shape[axis] / shape[axis]) for value in values]
        spread = sum(share * value.spread for value, share in shares)
        rectified = sum(share * value.rectified for value, share in shares)
        return self.node(
            "Concat", values, name, shape, spread=spread, rectified=rectified, axis=axis
        )

    def max_pool(
        self,
        x: Value,
        name: str,
        kernel: Extents,
        *,
        stride: Extents,
        padding: Extents = 0,
        ceil_mode: bool = False,
    ) -> Value:
        """Add a max pooling."""
        mode = int(ceil_mode)
        return self._pool("MaxPool", x, name, kernel, stride, padding, ceil_mode=mode)

    def average_pool(
        self, x: Value, name: str, kernel: Extents, *, stride: Extents, padding: Extents = 0
    ) -> Value:
        return self._pool("AveragePool", x, name, kernel, stride, padding, count_include_pad=1)

    def global_average_pool(self, x: Value, name: str) -> Value:
        """Add the average of each channel, ``(N, C, 1, 1)``."""
        shape = (*x.shape[:2], 1, 1)
        return self._scaled("GlobalAveragePool", [x], name, x, MEAN_SHARE**0.5, shape)

    def adaptive_average_pool(self, x: Value, name: str, size: int) -> Value:
        """Add a pooling to ``size x size``, by two constant products if windows overlap."""
        height, width = x.image
        if (height, width) == (size, size):
            return x
        if height % size == 0 and width % size == 0:
            kernel = (height // size, width // size)
            return self.average_pool(x, name, kernel, stride=kernel)
        columns = self.constant(f"{name}.columns", adaptive_windows(width, size).T)
        y = self._scaled("MatMul", [x, columns], f"{name}.columns", x, shape=(*x.shape[:3], size))
        rows = self.constant(f"{name}.rows", adaptive_windows(height, size))
        return self._scaled(
            "MatMul", [rows, y], f"{name}.rows", y, shape=(*x.shape[:2], size, size)
        )

    def upsample(self, x: Value, name: str, scale: int) -> Value:
        """Add a nearest-neighbour enlargement."""
        scales = self.constant(f"{name}.scales", np.array([1, 1, scale, scale], np.float32))
        shape = (*x.shape[:2], *(scale * size for size in x.image))
        return self._scaled(
            "Resize",
            [x, "", scales],
            name,
            x,
            shape=shape,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def flatten(self, x: Value, name: str) -> Value:
        """Add a view of shape ``(N, C * H * W)``."""
        shape = (x.batch, prod(x.shape[1:]))
        return self._scaled("Flatten", [x], name, x, shape=shape, axis=1)

    def reshape(self, x: Value, name: str, shape: Sequence[int]) -> Value:
        """Add a view of another shape with as many elements."""
        assert prod(shape) == prod(x.shape)
        target = self.constant(f"{name}.shape", np.array(shape, np.int64))
        return self._scaled("Reshape", [x, target], name, x, shape=shape)

    def transpose(self, x: Value, name: str, axes: Sequence[int]) -> Value:
        shape = [x.shape[axis] for axis in axes]
        return self._scaled("Transpose", [x], name, x, shape=shape, perm=axes)

    def slice(self, x: Value, name: str, start: int, stop: int, axis: int = 1) -> Value:
        """Add a slice from ``start`` to ``stop`` along one axis, by default of channels."""
        inputs = [
            self.constant(f"{name}.{key}", np.array([value], np.int64))
            for key, value in (("start", start), ("stop", stop), ("axis", axis))
        ]
        shape = list(x.shape)
        shape[axis] = stop - start
        return self._scaled("Slice", [x, *inputs], name, x, shape=shape)

    def _pool(self, op: str, x: Value, name: str, *extents: Extents, **attributes: int) -> Value:
        windows = Windows.of(*extents)
        image = windows.over(x.image, bool(attributes.get("ceil_mode")))
        return self._scaled(
            op,
            [x],
            name,
            x,
            shape=(*x.shape[:2], *image),
            kernel_shape=windows.kernel,
            strides=windows.stride,
            pads=windows.padding * 2,
            **attributes,
        )

    def _scaled(
        self,
        op: str,
        inputs: Sequence[Value | str],
        name: str,
        x: Value,
        gain: float = 1.0,
        shape: Sequence[int] | None = None,
        **attributes: Any,
    ) -> Value:
        """Add a node that multiplies ``x`` by about ``gain``."""
        return self.node(
            op,
            inputs,
            name,
            x.shape if shape is None else shape,
            spread=x.spread * gain**2,
            rectified=x.rectified * gain**2,
            **attributes,
        )

    def _rectifier(
        self, op: str, inputs: Sequence[Value | str], name: str, x: Value, **attributes: Any
    ) -> Value:
        rectified = x.rectified + x.spread / 2
        return self.node(op, inputs, name, x.shape, spread=0.0, rectified=rectified, **attributes)

    def _bias(self, name: str, channels: int) -> str:
        return self.constant(f"{name}.bias", self.uniform((channels,), -0.1, 0.1))


def _power(values: NDArray[np.float32]) -> float:
    return float(np.mean(values**2))
