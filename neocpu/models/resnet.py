"""ResNet with bottleneck blocks, as torchvision has it ("v1.5": the stride is on the 3x3).

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from neocpu.models.graph import NetworkBuilder, Value

EXPANSION = 4
# Sixteen blocks of gain 1/4 grow the variance by (1 + 1/16)^16 = 2.6 in all.
RESIDUAL_GAIN = 0.25


def resnet50(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-50: 3, 4, 6 and 3 bottleneck blocks."""
    return _bottleneck_resnet("resnet50", (3, 4, 6, 3), shape, seed)


def _bottleneck_resnet(
    name: str, blocks: Sequence[int], shape: Sequence[int], seed: int
) -> onnx.ModelProto:
    net = NetworkBuilder(name, shape, seed)
    x = net.conv(net.input, "conv1", 64, 7, stride=2, padding=3)
    x = net.relu(net.batch_norm(x, "bn1"), "relu")
    x = net.max_pool(x, "maxpool", 3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(net, x, f"layer{stage + 1}.{block}", 64 << stage, stride)
    return net.finish(net.classifier(x, "fc", 1000))


def _bottleneck(net: NetworkBuilder, x: Value, name: str, width: int, stride: int) -> Value:
    """1x1 down, 3x3, 1x1 up, around them the identity or a 1x1 where the shape changes."""
    y = net.conv(x, f"{name}.conv1", width, 1)
    y = net.relu(net.batch_norm(y, f"{name}.bn1"), f"{name}.relu")
    y = net.conv(y, f"{name}.conv2", width, 3, stride=stride, padding=1)
    y = net.relu(net.batch_norm(y, f"{name}.bn2"), f"{name}.relu_1")
    y = net.conv(y, f"{name}.conv3", width * EXPANSION, 1)
    y = net.batch_norm(y, f"{name}.bn3", gain=RESIDUAL_GAIN)
    if stride != 1 or x.channels != y.channels:
        x = net.conv(x, f"{name}.downsample.0", y.channels, 1, stride=stride)
        x = net.batch_norm(x, f"{name}.downsample.1")
    return net.relu(net.add(y, x, name), f"{name}.relu_2")
