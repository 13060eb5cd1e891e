"""DenseNet-BC as in torchvision: every layer concatenates all earlier features.

Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

BOTTLENECK = 4


def densenet121(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """DenseNet-121: blocks of 6, 12, 24 and 16 layers, growth 32."""
    return _densenet("densenet121", (6, 12, 24, 16), 32, 64, shape, seed)


def densenet161(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """DenseNet-161: blocks of 6, 12, 36 and 24 layers, growth 48."""
    return _densenet("densenet161", (6, 12, 36, 24), 48, 96, shape, seed)


def densenet169(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """DenseNet-169: blocks of 6, 12, 32 and 32 layers, growth 32."""
    return _densenet("densenet169", (6, 12, 32, 32), 32, 64, shape, seed)


def densenet201(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """DenseNet-201: blocks of 6, 12, 48 and 32 layers, growth 32."""
    return _densenet("densenet201", (6, 12, 48, 32), 32, 64, shape, seed)


def _densenet(
    name: str, blocks: Sequence[int], growth: int, stem: int, shape: Sequence[int], seed: int
) -> onnx.ModelProto:
    net = NetworkBuilder(name, shape, seed)
    x = net.conv(net.input, "features.conv0", stem, 7, stride=2, padding=3)
    x = net.relu(net.batch_norm(x, "features.norm0"), "features.relu0")
    x = net.max_pool(x, "features.pool0", 3, stride=2, padding=1)
    for number, layers in enumerate(blocks, start=1):
        x = _dense_block(net, x, f"features.denseblock{number}", layers, growth)
        if number < len(blocks):
            x = _transition(net, x, f"features.transition{number}")
    x = net.relu(net.batch_norm(x, "features.norm5"), "relu")
    return net.finish(net.classifier(x, "classifier", 1000))


def _dense_block(net: NetworkBuilder, x: Value, name: str, layers: int, growth: int) -> Value:
    features = [x]
    for number in range(1, layers + 1):
        layer = f"{name}.denselayer{number}"
        y = net.concat(features, layer)
        y = net.relu(net.batch_norm(y, f"{layer}.norm1"), f"{layer}.relu1")
        y = net.conv(y, f"{layer}.conv1", BOTTLENECK * growth, 1)
        y = net.relu(net.batch_norm(y, f"{layer}.norm2"), f"{layer}.relu2")
        features.append(net.conv(y, f"{layer}.conv2", growth, 3, padding=1))
    return net.concat(features, name)


def _transition(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Halve channels and resolution."""
    x = net.relu(net.batch_norm(x, f"{name}.norm"), f"{name}.relu")
    x = net.conv(x, f"{name}.conv", x.channels // 2, 1)
    return net.average_pool(x, f"{name}.pool", 2, stride=2)
