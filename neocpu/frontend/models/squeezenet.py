"""SqueezeNet 1.0 as in torchvision.

Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer: SqueezeNet: AlexNet-level accuracy with 50x fewer
parameters and <0.5MB model size, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

# The squeezed and expanded channels of each fire module, and the max poolings, by their index in
# PyTorch's Sequential.
_FIRES: Final = {
    3: (16, 64),
    4: (16, 64),
    5: (32, 128),
    7: (32, 128),
    8: (48, 192),
    9: (48, 192),
    10: (64, 256),
    12: (64, 256),
}
_POOLS: Final = (2, 6, 11)


def squeezenet1_0(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """SqueezeNet 1.0: eight fire modules, and a 1x1 convolution as the classifier."""
    net = NetworkBuilder("squeezenet1_0", shape, seed)
    x = net.conv(net.input, "features.0", 96, 7, stride=2, bias=True)
    x = net.relu(x, "features.1")
    for index in range(2, 13):
        name = f"features.{index}"
        if index in _POOLS:
            x = net.max_pool(x, name, 3, stride=2, ceil_mode=True)
        else:
            x = _fire(net, x, name, *_FIRES[index])
    x = net.relu(net.conv(x, "classifier.1", 1000, 1, bias=True), "classifier.2")
    x = net.global_average_pool(x, "classifier.3")
    return net.finish(net.flatten(x, "flatten"))


def _fire(net: NetworkBuilder, x: Value, name: str, squeezed: int, expanded: int) -> Value:
    """1x1 down, then 1x1 and 3x3 up in parallel."""
    x = net.conv(x, f"{name}.squeeze", squeezed, 1, bias=True)
    x = net.relu(x, f"{name}.squeeze_activation")
    one = net.conv(x, f"{name}.expand1x1", expanded, 1, bias=True)
    three = net.conv(x, f"{name}.expand3x3", expanded, 3, padding=1, bias=True)
    branches = (
        net.relu(one, f"{name}.expand1x1_activation"),
        net.relu(three, f"{name}.expand3x3_activation"),
    )
    return net.concat(branches, name)
