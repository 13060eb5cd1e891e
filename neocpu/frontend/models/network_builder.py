"""Describe networks in layers, named as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.frontend.models.emitter import Emitter, Value, gaussian_power
from neocpu.frontend.models.windows import Extents, Windows, adaptive_windows

__all__ = ["NetworkBuilder", "Value"]

BATCH_NORM_EPSILON: Final = 1e-5
# A gate is about one half, and so is the share that it passes.
GATE: Final = 0.5
# Standard deviation of a gate's input: small enough that gates stay near one half.
GATE_INPUT: Final = 0.25
# Share of a ReLU's mean square that is the square of its mean, which averaging keeps.
MEAN_SHARE: Final = 0.4


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
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool | NDArray[np.float32] = False,
        gain: float = 1.0,
    ) -> Value:
        """Add a convolution.

        Parameters
        ----------
        bias : bool or array
            Whether there is a bias, or its values.
        gain : float
            The standard deviation of the output that the weights are scaled to.
        """
        assert x.channels % groups == 0
        assert channels % groups == 0
        windows = Windows.of(kernel, stride, padding, dilation)
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
            dilations=windows.dilation,
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
        """Add a transposed convolution with bias."""
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

        Parameters
        ----------
        gain : float
            The mean of the scale. Residual branches end with a small one, because sums of full-size
            branches would double the variance with every block.
        epsilon : float
            The number added to the variance.
        """
        shape = (x.channels,)
        weight = self.uniform(shape, 0.8 * gain, 1.2 * gain)
        bias = self.uniform(shape, -0.1, 0.1)
        mean = self.uniform(shape, -0.1, 0.1)
        variance = self.uniform(shape, 0.8, 1.2)
        parameters = {
            "weight": weight,
            "bias": bias,
            "running_mean": mean,
            "running_var": variance,
        }
        scale = weight / np.sqrt(variance + epsilon)
        return self.node(
            "BatchNormalization",
            [x, *(self.constant(f"{name}.{key}", array) for key, array in parameters.items())],
            name,
            x.shape,
            spread=x.spread * _power(scale) + _power(bias - mean * scale),
            rectified=x.rectified * _power(scale),
            epsilon=epsilon,
        )

    def dense(self, x: Value, name: str, units: int) -> Value:
        """Add a dense layer with bias, ``(N, C)`` to ``(N, units)``."""
        weight = self.constant(
            f"{name}.weight", self.normal((units, x.channels), 1 / (x.channels * x.power))
        )
        inputs: list[Value | str] = [x, weight, self._bias(name, units)]
        return self.node("Gemm", inputs, name, (x.batch, units), alpha=1.0, beta=1.0, transB=1)

    def classifier(self, x: Value, name: str, classes: int) -> Value:
        """Add global average pooling and a dense layer with an output of ``(N, classes)``."""
        pooled = self.global_average_pool(x, "avgpool")
        return self.dense(self.flatten(pooled, "flatten"), name, classes)

    def relu(self, x: Value, name: str) -> Value:
        """Add a ReLU."""
        return self._rectifier("Relu", [x], name, x)

    def relu6(self, x: Value, name: str) -> Value:
        """Add a ReLU with an upper limit of 6."""
        low = self.constant(f"{name}.min", np.array(0, np.float32))
        high = self.constant(f"{name}.max", np.array(6, np.float32))
        return self._rectifier("Clip", [x, low, high], name, x)

    def leaky_relu(self, x: Value, name: str, slope: float) -> Value:
        """Add a leaky ReLU."""
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
        """Add a sigmoid."""
        return self.node("Sigmoid", [x], name, x.shape, spread=0.0, rectified=GATE**2)

    def hard_sigmoid(self, x: Value, name: str) -> Value:
        """Add PyTorch's hard sigmoid, ``relu6(x + 3) / 6``."""
        return self.node(
            "HardSigmoid",
            [x],
            name,
            x.shape,
            spread=0.0,
            rectified=GATE**2,
            alpha=1 / 6,
            beta=0.5,
        )

    def softmax(self, x: Value, name: str, axis: int) -> Value:
        """Add a softmax."""
        return self.node("Softmax", [x], name, x.shape, axis=axis)

    def squeeze_excitation(
        self, x: Value, name: str, squeezed: int, *, swish: bool = False
    ) -> Value:
        """Add a gate for each channel, computed from the averages of all channels.

        Parameters
        ----------
        squeezed : int
            The channels of the hidden layer.
        swish : bool
            Whether to use EfficientNet's SiLU and sigmoid instead of MobileNet's ReLU and hard
            sigmoid.
        """
        y = self.global_average_pool(x, f"{name}.avgpool")
        y = self.conv(y, f"{name}.fc1", squeezed, 1, bias=True)
        y = self.silu(y, f"{name}.activation") if swish else self.relu(y, f"{name}.activation")
        y = self.conv(y, f"{name}.fc2", x.channels, 1, bias=True, gain=GATE_INPUT)
        gate = self.sigmoid if swish else self.hard_sigmoid
        return self._scaled("Mul", [gate(y, f"{name}.scale_activation"), x], name, x, GATE)

    def add(self, x: Value, y: Value, name: str) -> Value:
        """Add a sum of two tensors."""
        assert x.shape == y.shape
        spread, rectified = x.spread + y.spread, x.rectified + y.rectified
        return self.node("Add", [x, y], name, x.shape, spread=spread, rectified=rectified)

    def mul(self, x: Value, y: Value, name: str) -> Value:
        """Add a product of two tensors."""
        assert x.shape == y.shape
        return self.node("Mul", [x, y], name, x.shape, spread=x.power * y.power)

    def concat(self, values: Sequence[Value], name: str, axis: int = 1) -> Value:
        """Add a concatenation; a single value is returned as it is."""
        if len(values) == 1:
            return values[0]
        extents = [value.shape[axis] for value in values]
        shape = list(values[0].shape)
        shape[axis] = sum(extents)
        shares = [extent / shape[axis] for extent in extents]
        return self.node(
            "Concat",
            values,
            name,
            shape,
            spread=sum(s * v.spread for s, v in zip(shares, values, strict=True)),
            rectified=sum(s * v.rectified for s, v in zip(shares, values, strict=True)),
            axis=axis,
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
        windows = Windows.of(kernel, stride, padding)
        image = windows.over(x.image, ceil_mode)
        return self._pool("MaxPool", x, name, windows, image, ceil_mode=int(ceil_mode))

    def average_pool(
        self,
        x: Value,
        name: str,
        kernel: Extents,
        *,
        stride: Extents,
        padding: Extents = 0,
        count_include_pad: bool = True,
    ) -> Value:
        """Add an average pooling; as in PyTorch, padding counts by default."""
        windows, counted = Windows.of(kernel, stride, padding), int(count_include_pad)
        image = windows.over(x.image)
        return self._pool("AveragePool", x, name, windows, image, count_include_pad=counted)

    def global_average_pool(self, x: Value, name: str) -> Value:
        """Add the average of each channel, ``(N, C, 1, 1)``."""
        shape = (*x.shape[:2], 1, 1)
        return self._scaled("GlobalAveragePool", [x], name, x, MEAN_SHARE**0.5, shape)

    def adaptive_average_pool(self, x: Value, name: str, size: int) -> Value:
        """Add an average pooling to ``size x size``, as PyTorch's ``AdaptiveAvgPool2d``.

        If the image is not a multiple of ``size``, the windows overlap and differ in size. Then the
        pooling is two products with constant matrices.
        """
        height, width = x.image
        if (height, width) == (size, size):
            return x
        if height % size == 0 and width % size == 0:
            kernel = (height // size, width // size)
            return self.average_pool(x, name, kernel, stride=kernel)
        columns = self.constant(f"{name}.columns", adaptive_windows(width, size).T)
        shape = (*x.shape[:3], size)
        y = self._scaled("MatMul", [x, columns], f"{name}.columns", x, shape=shape)
        rows = self.constant(f"{name}.rows", adaptive_windows(height, size))
        shape = (*x.shape[:2], size, size)
        return self._scaled("MatMul", [rows, y], f"{name}.rows", y, shape=shape)

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
        """Add a permutation of axes."""
        shape = [x.shape[axis] for axis in axes]
        return self._scaled("Transpose", [x], name, x, shape=shape, perm=axes)

    def slice(self, x: Value, name: str, start: int, stop: int, axis: int = 1) -> Value:
        """Add a slice from ``start`` to ``stop`` along one axis, by default of channels."""
        bounds = {"start": start, "stop": stop, "axis": axis}
        inputs = [
            self.constant(f"{name}.{key}", np.array([value], np.int64))
            for key, value in bounds.items()
        ]
        shape = list(x.shape)
        shape[axis] = stop - start
        return self._scaled("Slice", [x, *inputs], name, x, shape=shape)

    def channel_shuffle(self, x: Value, name: str, groups: int) -> Value:
        """Interleave the channels of ``groups`` groups."""
        split = (x.batch, groups, x.channels // groups, *x.image)
        y = self.reshape(x, f"{name}.split", split)
        y = self.transpose(y, name, (0, 2, 1, 3, 4))
        return self.reshape(y, f"{name}.join", x.shape)

    def _pool(
        self,
        op: str,
        x: Value,
        name: str,
        windows: Windows,
        image: tuple[int, ...],
        **attributes: int,
    ) -> Value:
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
        """Add a node that cuts off values below zero."""
        rectified = x.rectified + x.spread / 2
        return self.node(op, inputs, name, x.shape, spread=0.0, rectified=rectified, **attributes)

    def _bias(self, name: str, channels: int) -> str:
        return self.constant(f"{name}.bias", self.uniform((channels,), -0.1, 0.1))


def _power(values: NDArray[np.float32]) -> float:
    return float(np.mean(values**2))
