"""VGG without batch norms, as in torchvision.

Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, ICLR 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder

WIDTHS = (64, 128, 256, 512, 512)
HIDDEN = 4096
# The size that the dense layers expect, whatever the size of the image.
FEATURE_MAP = 7


def vgg11(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """VGG-11, configuration A."""
    return _vgg("vgg11", (1, 1, 2, 2, 2), shape, seed)


def vgg13(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """VGG-13, configuration B."""
    return _vgg("vgg13", (2, 2, 2, 2, 2), shape, seed)


def vgg16(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """VGG-16, configuration D."""
    return _vgg("vgg16", (2, 2, 3, 3, 3), shape, seed)


def vgg19(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """VGG-19, configuration E."""
    return _vgg("vgg19", (2, 2, 4, 4, 4), shape, seed)


def _vgg(name: str, blocks: Sequence[int], shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """3x3 convolutions, a max pooling after each block of them, and three dense layers."""
    net = NetworkBuilder(name, shape, seed)
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
    return net.finish(net.dense(x, "classifier.6", 1000))
