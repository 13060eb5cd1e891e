"""MobileNet in three generations; v2 and v3 as in torchvision.

Howard et al.: MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications,
2017. Sandler, Howard, Zhu, Zhmoginov, Chen: MobileNetV2: Inverted Residuals and Linear Bottlenecks,
CVPR 2018. Howard et al.: Searching for MobileNetV3, ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import onnx

from neocpu.frontend.models.blocks import conv_norm_activation
from neocpu.frontend.models.network_builder import NetworkBuilder, Value

V3_EPSILON: Final = 1e-3
# Channels and stride of each depthwise separable convolution.
_V1: Final = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)
# Expansion, channels, blocks and the first block's stride, from table 2.
_V2: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _V3Block:
    """One row of MobileNet-v3's table 1."""

    kernel: int
    expanded: int
    channels: int
    squeeze: bool
    swish: bool
    stride: int = 1


_V3_LARGE: Final = (
    _V3Block(kernel=3, expanded=16, channels=16, squeeze=False, swish=False),
    _V3Block(kernel=3, expanded=64, channels=24, squeeze=False, swish=False, stride=2),
    _V3Block(kernel=3, expanded=72, channels=24, squeeze=False, swish=False),
    _V3Block(kernel=5, expanded=72, channels=40, squeeze=True, swish=False, stride=2),
    _V3Block(kernel=5, expanded=120, channels=40, squeeze=True, swish=False),
    _V3Block(kernel=5, expanded=120, channels=40, squeeze=True, swish=False),
    _V3Block(kernel=3, expanded=240, channels=80, squeeze=False, swish=True, stride=2),
    _V3Block(kernel=3, expanded=200, channels=80, squeeze=False, swish=True),
    _V3Block(kernel=3, expanded=184, channels=80, squeeze=False, swish=True),
    _V3Block(kernel=3, expanded=184, channels=80, squeeze=False, swish=True),
    _V3Block(kernel=3, expanded=480, channels=112, squeeze=True, swish=True),
    _V3Block(kernel=3, expanded=672, channels=112, squeeze=True, swish=True),
    _V3Block(kernel=5, expanded=672, channels=160, squeeze=True, swish=True, stride=2),
    _V3Block(kernel=5, expanded=960, channels=160, squeeze=True, swish=True),
    _V3Block(kernel=5, expanded=960, channels=160, squeeze=True, swish=True),
)

_v2_layer = partial(conv_norm_activation, activation=NetworkBuilder.relu6)
_v3_layer = partial(conv_norm_activation, epsilon=V3_EPSILON)


def mobilenet_v1(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """MobileNet-v1 of full width: a 3x3, then alternating depthwise and pointwise convolutions."""
    net = NetworkBuilder("mobilenet_v1", shape, seed)
    x = net.conv(net.input, "model.0.0", 32, 3, stride=2, padding=1)
    x = net.relu(net.batch_norm(x, "model.0.1"), "model.0.2")
    for number, (channels, stride) in enumerate(_V1, start=1):
        name = f"model.{number}"
        x = net.conv(x, f"{name}.0", x.channels, 3, stride=stride, padding=1, groups=x.channels)
        x = net.relu(net.batch_norm(x, f"{name}.1"), f"{name}.2")
        x = net.conv(x, f"{name}.3", channels, 1)
        x = net.relu(net.batch_norm(x, f"{name}.4"), f"{name}.5")
    return net.finish(net.classifier(x, "fc", 1000))


def mobilenet_v2(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """MobileNet-v2 of full width: inverted residuals between linear bottlenecks."""
    net = NetworkBuilder("mobilenet_v2", shape, seed)
    x = _v2_layer(net, net.input, "features.0", 32, 3, stride=2)
    number = 1
    for expansion, channels, blocks, first_stride in _V2:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(net, x, f"features.{number}", expansion, channels, stride)
            number += 1
    x = _v2_layer(net, x, f"features.{number}", 1280, 1)
    return net.finish(net.classifier(x, "classifier.1", 1000))


def _inverted_residual(
    net: NetworkBuilder, x: Value, name: str, expansion: int, channels: int, stride: int
) -> Value:
    """1x1 up, depthwise 3x3, 1x1 down without activation; plus the input if shapes allow."""
    expanded = x.channels * expansion
    layers = f"{name}.conv"
    y = x
    number = 0
    if expansion != 1:
        y = _v2_layer(net, y, f"{layers}.0", expanded, 1)
        number = 1
    y = _v2_layer(net, y, f"{layers}.{number}", expanded, 3, stride=stride, groups=expanded)
    y = net.conv(y, f"{layers}.{number + 1}", channels, 1)
    y = net.batch_norm(y, f"{layers}.{number + 2}")
    return net.add(x, y, name) if stride == 1 and x.channels == channels else y


def mobilenet_v3_large(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """MobileNet-v3 Large: inverted residuals, most with squeeze-excitation or hard swish."""
    net = NetworkBuilder("mobilenet_v3_large", shape, seed)
    swish = NetworkBuilder.hard_swish
    x = _v3_layer(net, net.input, "features.0", 16, 3, activation=swish, stride=2)
    for number, block in enumerate(_V3_LARGE, start=1):
        x = _v3_block(net, x, f"features.{number}", block)
    x = _v3_layer(net, x, f"features.{len(_V3_LARGE) + 1}", 960, 1, activation=swish)
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    x = net.hard_swish(net.dense(x, "classifier.0", 1280), "classifier.1")
    return net.finish(net.dense(x, "classifier.3", 1000))


def _v3_block(net: NetworkBuilder, x: Value, name: str, row: _V3Block) -> Value:
    """Add `_inverted_residual` with squeeze-excitation after the depthwise convolution."""
    layers = [f"{name}.block.{number}" for number in range(4)]
    activation = NetworkBuilder.hard_swish if row.swish else NetworkBuilder.relu
    y = x
    if row.expanded != x.channels:
        y = _v3_layer(net, y, layers.pop(0), row.expanded, 1, activation=activation)
    y = _v3_layer(
        net,
        y,
        layers.pop(0),
        row.expanded,
        row.kernel,
        activation=activation,
        stride=row.stride,
        groups=row.expanded,
    )
    if row.squeeze:
        y = net.squeeze_excitation(y, layers.pop(0), _multiple_of_8(row.expanded / 4))
    project = layers.pop(0)
    y = net.conv(y, f"{project}.0", row.channels, 1)
    y = net.batch_norm(y, f"{project}.1", epsilon=V3_EPSILON)
    return net.add(x, y, name) if row.stride == 1 and x.channels == row.channels else y


def _multiple_of_8(channels: float) -> int:
    """Return the closest multiple of 8 that is at least 90 % of ``channels``."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
