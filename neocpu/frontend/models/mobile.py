"""Networks for phones: MobileNet in three generations, EfficientNet-B0 and ShuffleNet-v2.

All but the first are as in torchvision. Howard et al.: MobileNets: Efficient Convolutional Neural
Networks for Mobile Vision Applications, 2017. Sandler, Howard, Zhu, Zhmoginov, Chen: MobileNetV2:
Inverted Residuals and Linear Bottlenecks, CVPR 2018. Howard et al.: Searching for MobileNetV3, ICCV
2019. Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019.
Ma, Zhang, Zheng, Sun: ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design,
ECCV 2018.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from neocpu.frontend.models.network_builder import NetworkBuilder, Value, numbered

V3_EPSILON: Final = 1e-3
B0_RESIDUAL_GAIN: Final = 0.25
# The scale at which SiLU is nearly linear. It passes a larger share of larger values, so too large
# ones would grow from layer to layer, and too small ones would fade.
SILU_GAIN: Final = 0.25
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
# Kernel, expanded channels, channels, squeeze-excitation, hard swish and stride, from table 1.
_V3_LARGE: Final = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
# Expansion, kernel, the first block's stride, channels and blocks, from table 1.
_B0: Final = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
# Channels and units of ShuffleNet's stages 2 to 4.
_X1_0: Final = ((116, 4), (232, 8), (464, 4))


def mobilenet_v1(net: NetworkBuilder) -> Value:
    """MobileNet-v1 of full width: a 3x3, then alternating depthwise and pointwise convolutions."""
    x = net.layer(net.input, numbered("model.0"), 32, 3, stride=2)
    for number, (channels, stride) in enumerate(_V1, start=1):
        names = f"model.{number}"
        x = net.layer(x, numbered(names), x.channels, 3, stride=stride, groups=x.channels)
        x = net.layer(x, numbered(names, 3), channels, 1)
    return net.classifier(x, "fc", 1000)


def mobilenet_v2(net: NetworkBuilder) -> Value:
    """MobileNet-v2 of full width: inverted residuals between linear bottlenecks."""
    relu6 = NetworkBuilder.relu6
    x = net.layer(net.input, numbered("features.0"), 32, 3, activation=relu6, stride=2)
    number = 1
    for expansion, channels, blocks, first_stride in _V2:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(net, x, f"features.{number}", expansion, channels, stride)
            number += 1
    x = net.layer(x, numbered(f"features.{number}"), 1280, 1, activation=relu6)
    return net.classifier(x, "classifier.1", 1000)


def _inverted_residual(
    net: NetworkBuilder, x: Value, name: str, expansion: int, channels: int, stride: int
) -> Value:
    """1x1 up, depthwise 3x3, 1x1 down without activation; plus the input if shapes allow."""
    layer = partial(net.layer, activation=NetworkBuilder.relu6)
    expanded, number, y = x.channels * expansion, 0, x
    if expansion != 1:
        y = layer(y, numbered(f"{name}.conv.0"), expanded, 1)
        number = 1
    names = numbered(f"{name}.conv.{number}")
    y = layer(y, names, expanded, 3, stride=stride, groups=expanded)
    conv, norm, _ = numbered(f"{name}.conv", number + 1)
    y = net.conv_norm(y, conv, norm, channels, 1)
    return net.add(x, y, name) if stride == 1 and x.channels == channels else y


def mobilenet_v3_large(net: NetworkBuilder) -> Value:
    """MobileNet-v3 Large: inverted residuals, most with squeeze-excitation or hard swish."""
    layer = partial(net.layer, activation=NetworkBuilder.hard_swish, epsilon=V3_EPSILON)
    x = layer(net.input, numbered("features.0"), 16, 3, stride=2)
    for number, row in enumerate(_V3_LARGE, start=1):
        x = _v3_block(net, x, f"features.{number}", *row)
    x = layer(x, numbered(f"features.{len(_V3_LARGE) + 1}"), 960, 1)
    x = net.flatten(net.global_average_pool(x, "avgpool"), "flatten")
    x = net.hard_swish(net.dense(x, "classifier.0", 1280), "classifier.1")
    return net.dense(x, "classifier.3", 1000)


def _v3_block(
    net: NetworkBuilder,
    x: Value,
    name: str,
    kernel: int,
    expanded: int,
    channels: int,
    squeeze: bool,
    swish: bool,
    stride: int,
) -> Value:
    """Add `_inverted_residual` with squeeze-excitation after the depthwise convolution."""
    layers = iter(f"{name}.block.{number}" for number in range(4))
    activation = NetworkBuilder.hard_swish if swish else NetworkBuilder.relu
    layer = partial(net.layer, activation=activation, epsilon=V3_EPSILON)
    y = x
    if expanded != x.channels:
        y = layer(y, numbered(next(layers)), expanded, 1)
    y = layer(y, numbered(next(layers)), expanded, kernel, stride=stride, groups=expanded)
    if squeeze:
        y = net.squeeze_excitation(y, next(layers), _multiple_of_8(expanded / 4))
    conv, norm, _ = numbered(next(layers))
    y = net.conv_norm(y, conv, norm, channels, 1, epsilon=V3_EPSILON)
    return net.add(x, y, name) if stride == 1 and x.channels == channels else y


def _multiple_of_8(channels: float) -> int:
    """Return the closest multiple of 8 that is at least 90 % of ``channels``."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def efficientnet_b0(net: NetworkBuilder) -> Value:
    """EfficientNet-B0: inverted residuals with squeeze-excitation and SiLU."""
    layer = partial(net.layer, activation=NetworkBuilder.silu, gain=SILU_GAIN)
    x = layer(net.input, numbered("features.0"), 32, 3, stride=2)
    for number, (expansion, kernel, first_stride, channels, blocks) in enumerate(_B0, start=1):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            name = f"features.{number}.{block}"
            x = _mbconv(net, x, name, expansion, kernel, stride, channels)
    x = layer(x, numbered(f"features.{len(_B0) + 1}"), 1280, 1)
    return net.classifier(x, "classifier.1", 1000)


def _mbconv(
    net: NetworkBuilder,
    x: Value,
    name: str,
    expansion: int,
    kernel: int,
    stride: int,
    channels: int,
) -> Value:
    """1x1 up, depthwise, squeeze-excitation, 1x1 down; plus the input if shapes allow."""
    layers = iter(f"{name}.block.{number}" for number in range(4))
    layer = partial(net.layer, activation=NetworkBuilder.silu, gain=SILU_GAIN)
    expanded, y = x.channels * expansion, x
    if expansion != 1:
        y = layer(y, numbered(next(layers)), expanded, 1)
    y = layer(y, numbered(next(layers)), expanded, kernel, stride=stride, groups=expanded)
    y = net.squeeze_excitation(y, next(layers), x.channels // 4, swish=True)
    conv, norm, _ = numbered(next(layers))
    adds = stride == 1 and x.channels == channels
    y = net.conv_norm(y, conv, norm, channels, 1, gain=B0_RESIDUAL_GAIN if adds else 1.0)
    return net.add(y, x, name) if adds else y


def shufflenet_v2_x1_0(net: NetworkBuilder) -> Value:
    """ShuffleNet-v2 of full width: units on half of the channels, shuffled with the other half."""
    x = net.layer(net.input, numbered("conv1"), 24, 3, stride=2)
    x = net.max_pool(x, "maxpool", 3, stride=2, padding=1)
    for stage, (channels, units) in enumerate(_X1_0, start=2):
        x = _down_unit(net, x, f"stage{stage}.0", channels // 2)
        for unit in range(1, units):
            x = _unit(net, x, f"stage{stage}.{unit}")
    return net.classifier(net.layer(x, numbered("conv5"), 1024, 1), "fc", 1000)


def _down_unit(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    """Two branches of stride 2 over all channels."""
    y = _depthwise(net, x, f"{name}.branch1", 0, stride=2)
    y = net.layer(y, numbered(f"{name}.branch1", 2), channels, 1)
    z = _branch(net, x, f"{name}.branch2", channels, stride=2)
    return channel_shuffle(net, net.concat((y, z), name), f"{name}.shuffle")


def _unit(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Half of the channels pass unchanged, and the others go through a branch."""
    half = x.channels // 2
    passed = net.slice(x, f"{name}.first", 0, half)
    rest = net.slice(x, f"{name}.second", half, x.channels)
    rest = _branch(net, rest, f"{name}.branch2", half, stride=1)
    return channel_shuffle(net, net.concat((passed, rest), name), f"{name}.shuffle")


def _branch(net: NetworkBuilder, x: Value, name: str, channels: int, *, stride: int) -> Value:
    """1x1, depthwise 3x3, 1x1."""
    x = net.layer(x, numbered(name), channels, 1)
    x = _depthwise(net, x, name, 3, stride=stride)
    return net.layer(x, numbered(name, 5), channels, 1)


def _depthwise(net: NetworkBuilder, x: Value, name: str, first: int, *, stride: int) -> Value:
    conv, norm, _ = numbered(name, first)
    return net.conv_norm(x, conv, norm, x.channels, 3, stride=stride, groups=x.channels)


def channel_shuffle(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Interleave both halves of the channels."""
    y = net.reshape(x, f"{name}.split", (x.batch, 2, x.channels // 2, *x.image))
    y = net.transpose(y, name, (0, 2, 1, 3, 4))
    return net.reshape(y, f"{name}.join", x.shape)
