"""ResNet and ResNeXt as in torchvision ("v1.5": the stride is in the 3x3).

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016. Xie, Girshick, Dollár,
Tu, He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

EXPANSION = 4
# Sixteen blocks of gain 1/4 double the variance in total.
RESIDUAL_GAIN = 0.25

Block = Callable[[NetworkBuilder, Value, str, int, int], Value]
"""A function that adds a block; the last arguments are its name, width and stride."""


def resnet18(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-18: 2, 2, 2 and 2 blocks of two 3x3 convolutions."""
    return _resnet("resnet18", _basic_block, (2, 2, 2, 2), shape, seed)


def resnet34(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-34: 3, 4, 6 and 3 blocks of two 3x3 convolutions."""
    return _resnet("resnet34", _basic_block, (3, 4, 6, 3), shape, seed)


def resnet50(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-50: 3, 4, 6 and 3 bottleneck blocks."""
    return _resnet("resnet50", bottleneck, (3, 4, 6, 3), shape, seed)


def resnet101(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-101: 3, 4, 23 and 3 bottleneck blocks."""
    return _resnet("resnet101", bottleneck, (3, 4, 23, 3), shape, seed)


def resnet152(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNet-152: 3, 8, 36 and 3 bottleneck blocks."""
    return _resnet("resnet152", bottleneck, (3, 8, 36, 3), shape, seed)


def resnext50_32x4d(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """ResNeXt-50 (32x4d): ResNet-50 with 3x3 convolutions of 32 groups, twice as wide."""
    block = partial(bottleneck, groups=32, widening=2)
    return _resnet("resnext50_32x4d", block, (3, 4, 6, 3), shape, seed)


def _resnet(
    name: str, block: Block, counts: Sequence[int], shape: Sequence[int], seed: int
) -> onnx.ModelProto:
    net = NetworkBuilder(name, shape, seed)
    return net.finish(net.classifier(stages(net, block, counts)[-1], "fc", 1000))


def stages(net: NetworkBuilder, block: Block, counts: Sequence[int]) -> list[Value]:
    """Add the stem and all blocks; return each stage's result, from 1/4 to 1/32 of the input."""
    x = net.conv(net.input, "conv1", 64, 7, stride=2, padding=3)
    x = net.relu(net.batch_norm(x, "bn1"), "relu")
    x = net.max_pool(x, "maxpool", 3, stride=2, padding=1)
    results = []
    for stage, count in enumerate(counts):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            x = block(net, x, f"layer{stage + 1}.{number}", 64 << stage, stride)
        results.append(x)
    return results


def _basic_block(net: NetworkBuilder, x: Value, name: str, width: int, stride: int) -> Value:
    """Two 3x3; plus the input, through a 1x1 if the shape changes."""
    y = net.conv(x, f"{name}.conv1", width, 3, stride=stride, padding=1)
    y = net.relu(net.batch_norm(y, f"{name}.bn1"), f"{name}.relu")
    y = net.conv(y, f"{name}.conv2", width, 3, padding=1)
    y = net.batch_norm(y, f"{name}.bn2", gain=RESIDUAL_GAIN)
    return net.relu(net.add(y, _shortcut(net, x, y, name, stride), name), f"{name}.relu_1")


def bottleneck(
    net: NetworkBuilder,
    x: Value,
    name: str,
    width: int,
    stride: int,
    *,
    groups: int = 1,
    widening: int = 1,
    stride_first: bool = False,
) -> Value:
    """1x1 down, 3x3, 1x1 up; plus the input, through a 1x1 if the shape changes.

    The stride is in the 3x3 ("v1.5"), or with ``stride_first`` in the first 1x1, as in the paper.
    """
    inner = width * widening
    first, second = (stride, 1) if stride_first else (1, stride)
    y = net.conv(x, f"{name}.conv1", inner, 1, stride=first)
    y = net.relu(net.batch_norm(y, f"{name}.bn1"), f"{name}.relu")
    y = net.conv(y, f"{name}.conv2", inner, 3, stride=second, padding=1, groups=groups)
    y = net.relu(net.batch_norm(y, f"{name}.bn2"), f"{name}.relu_1")
    y = net.conv(y, f"{name}.conv3", width * EXPANSION, 1)
    y = net.batch_norm(y, f"{name}.bn3", gain=RESIDUAL_GAIN)
    return net.relu(net.add(y, _shortcut(net, x, y, name, stride), name), f"{name}.relu_2")


def _shortcut(net: NetworkBuilder, x: Value, y: Value, name: str, stride: int) -> Value:
    if stride == 1 and x.channels == y.channels:
        return x
    x = net.conv(x, f"{name}.downsample.0", y.channels, 1, stride=stride)
    return net.batch_norm(x, f"{name}.downsample.1")
