"""EfficientNet-B0 as in torchvision.

Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import onnx

from neocpu.frontend.models.blocks import conv_norm_activation
from neocpu.frontend.models.network_builder import NetworkBuilder, Value

RESIDUAL_GAIN: Final = 0.25
# The scale at which SiLU is nearly linear. It passes a larger share of larger values, so too large
# ones would grow from layer to layer, and too small ones would fade.
SILU_GAIN: Final = 0.25


@dataclass(frozen=True, slots=True)
class _Stage:
    """One row of table 1."""

    expansion: int
    kernel: int
    stride: int
    channels: int
    blocks: int


_B0: Final = (
    _Stage(1, 3, 1, 16, 1),
    _Stage(6, 3, 2, 24, 2),
    _Stage(6, 5, 2, 40, 2),
    _Stage(6, 3, 2, 80, 3),
    _Stage(6, 5, 1, 112, 3),
    _Stage(6, 5, 2, 192, 4),
    _Stage(6, 3, 1, 320, 1),
)

_layer = partial(conv_norm_activation, activation=NetworkBuilder.silu, gain=SILU_GAIN)


def efficientnet_b0(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """EfficientNet-B0: inverted residuals with squeeze-excitation and SiLU."""
    net = NetworkBuilder("efficientnet_b0", shape, seed)
    x = _layer(net, net.input, "features.0", 32, 3, stride=2)
    for number, stage in enumerate(_B0, start=1):
        for block in range(stage.blocks):
            stride = stage.stride if block == 0 else 1
            x = _mbconv(net, x, f"features.{number}.{block}", stage, stride)
    x = _layer(net, x, f"features.{len(_B0) + 1}", 1280, 1)
    return net.finish(net.classifier(x, "classifier.1", 1000))


def _mbconv(net: NetworkBuilder, x: Value, name: str, stage: _Stage, stride: int) -> Value:
    """1x1 up, depthwise, squeeze-excitation, 1x1 down; plus the input if shapes allow."""
    layers = [f"{name}.block.{number}" for number in range(4)]
    expanded = x.channels * stage.expansion
    y = x
    if stage.expansion != 1:
        y = _layer(net, y, layers.pop(0), expanded, 1)
    y = _layer(net, y, layers.pop(0), expanded, stage.kernel, stride=stride, groups=expanded)
    y = net.squeeze_excitation(y, layers.pop(0), x.channels // 4, swish=True)
    project = layers.pop(0)
    y = net.conv(y, f"{project}.0", stage.channels, 1)
    if stride != 1 or x.channels != stage.channels:
        return net.batch_norm(y, f"{project}.1")
    return net.add(net.batch_norm(y, f"{project}.1", gain=RESIDUAL_GAIN), x, name)
