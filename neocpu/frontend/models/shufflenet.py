"""ShuffleNet-v2 as in torchvision.

Ma, Zhang, Zheng, Sun: ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design,
ECCV 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

STEM: Final = 24
LAST: Final = 1024
# Channels and units of stages 2 to 4.
_X1_0: Final = ((116, 4), (232, 8), (464, 4))


def shufflenet_v2_x1_0(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ShuffleNet-v2 of full width: units on half of the channels, shuffled with the other half."""
    net = NetworkBuilder("shufflenet_v2_x1_0", shape, seed)
    x = net.conv(net.input, "conv1.0", STEM, 3, stride=2, padding=1)
    x = net.relu(net.batch_norm(x, "conv1.1"), "conv1.2")
    x = net.max_pool(x, "maxpool", 3, stride=2, padding=1)
    for stage, (channels, units) in enumerate(_X1_0, start=2):
        x = _down_unit(net, x, f"stage{stage}.0", channels // 2)
        for unit in range(1, units):
            x = _unit(net, x, f"stage{stage}.{unit}")
    x = net.relu(net.batch_norm(net.conv(x, "conv5.0", LAST, 1), "conv5.1"), "conv5.2")
    return net.finish(net.classifier(x, "fc", 1000))


def _down_unit(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    """Two branches of stride 2 over all channels."""
    y = _depthwise(net, x, f"{name}.branch1.0", f"{name}.branch1.1", stride=2)
    y = net.batch_norm(net.conv(y, f"{name}.branch1.2", channels, 1), f"{name}.branch1.3")
    y = net.relu(y, f"{name}.branch1.4")
    z = _branch(net, x, f"{name}.branch2", channels, stride=2)
    return net.channel_shuffle(net.concat((y, z), name), f"{name}.shuffle", 2)


def _unit(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Half of the channels pass unchanged, and the others go through a branch."""
    half = x.channels // 2
    passed = net.slice(x, f"{name}.first", 0, half)
    rest = net.slice(x, f"{name}.second", half, x.channels)
    rest = _branch(net, rest, f"{name}.branch2", half, stride=1)
    return net.channel_shuffle(net.concat((passed, rest), name), f"{name}.shuffle", 2)


def _branch(net: NetworkBuilder, x: Value, name: str, channels: int, *, stride: int) -> Value:
    """1x1, depthwise 3x3, 1x1."""
    x = net.batch_norm(net.conv(x, f"{name}.0", channels, 1), f"{name}.1")
    x = _depthwise(net, net.relu(x, f"{name}.2"), f"{name}.3", f"{name}.4", stride=stride)
    x = net.batch_norm(net.conv(x, f"{name}.5", channels, 1), f"{name}.6")
    return net.relu(x, f"{name}.7")


def _depthwise(net: NetworkBuilder, x: Value, conv: str, norm: str, *, stride: int) -> Value:
    x = net.conv(x, conv, x.channels, 3, stride=stride, padding=1, groups=x.channels)
    return net.batch_norm(x, norm)
