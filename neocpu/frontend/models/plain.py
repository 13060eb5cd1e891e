"""Networks without batch norms, as in torchvision: VGG and SqueezeNet 1.0.

Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015.
Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer: SqueezeNet: AlexNet-level accuracy with 50x fewer
parameters and <0.5MB model size, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

WIDTHS = (64, 128, 256, 512, 512)
HIDDEN = 4096
# The size that the dense layers expect, whatever the size of the image.
FEATURE_MAP = 7

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


def _vgg(net: NetworkBuilder, *, blocks: Sequence[int]) -> Value:
    """3x3 convolutions, a max pooling after each block of them, and three dense layers."""
    x = net.input
    index = 0  # the index in PyTorch's Sequential, where activations and pools count
    for width, layers in zip(WIDTHS, blocks, strict=True):
        for _ in range(layers):
            x = net.conv(x, f"features.{index}", width, 3, padding=1, bias=True)
            x = net.relu(x, f"features.{index + 1}")
            index += 2
        x = net.max_pool(x, f"features.{index}", 2, stride=2)
        index += 1
    x = net.flatten(net.adaptive_average_pool(x, "avgpool", FEATURE_MAP), "flatten")
    x = net.relu(net.dense(x, "classifier.0", HIDDEN), "classifier.1")
    x = net.relu(net.dense(x, "classifier.3", HIDDEN), "classifier.4")
    return net.dense(x, "classifier.6", 1000)


vgg11 = partial(_vgg, blocks=(1, 1, 2, 2, 2))
vgg13 = partial(_vgg, blocks=(2, 2, 2, 2, 2))
vgg16 = partial(_vgg, blocks=(2, 2, 3, 3, 3))
vgg19 = partial(_vgg, blocks=(2, 2, 4, 4, 4))


def squeezenet1_0(net: NetworkBuilder) -> Value:
    """SqueezeNet 1.0: eight fire modules, and a 1x1 convolution as the classifier."""
    x = net.conv(net.input, "features.0", 96, 7, stride=2, bias=True)
    x = net.relu(x, "features.1")
    for index in range(2, 13):
        name = f"features.{index}"
        if index in _POOLS:
            x = net.max_pool(x, name, 3, stride=2, ceil_mode=True)
        else:
            x = _fire(net, x, name, *_FIRES[index])
    x = net.relu(net.conv(x, "classifier.1", 1000, 1, bias=True), "classifier.2")
    return net.flatten(net.global_average_pool(x, "classifier.3"), "flatten")


def _fire(net: NetworkBuilder, x: Value, name: str, squeezed: int, expanded: int) -> Value:
    """1x1 down, then 1x1 and 3x3 up in parallel."""
    x = net.conv(x, f"{name}.squeeze", squeezed, 1, bias=True)
    x = net.relu(x, f"{name}.squeeze_activation")
    one = net.conv(x, f"{name}.expand1x1", expanded, 1, bias=True)
    three = net.conv(x, f"{name}.expand3x3", expanded, 3, padding=1, bias=True)
    one = net.relu(one, f"{name}.expand1x1_activation")
    return net.concat((one, net.relu(three, f"{name}.expand3x3_activation")), name)
