"""ResNet and ResNeXt as in torchvision ("v1.5": the stride is in the 3x3).

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016. Xie, Girshick, Dollár,
Tu, He: Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

EXPANSION = 4
# Sixteen blocks of gain 1/4 double the variance in total.
RESIDUAL_GAIN = 0.25

Block = Callable[[NetworkBuilder, Value, str, int, int], Value]
"""A function that adds a block; the last arguments are its name, width and stride."""


def _resnet(net: NetworkBuilder, *, block: Block, counts: Sequence[int]) -> Value:
    return net.classifier(stages(net, block, counts)[-1], "fc", 1000)


def stages(net: NetworkBuilder, block: Block, counts: Sequence[int]) -> list[Value]:
    """Add the stem and all blocks; return each stage's result, from 1/4 to 1/32 of the input."""
    x = net.layer(net.input, ("conv1", "bn1", "relu"), 64, 7, stride=2)
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
    y = net.layer(x, (f"{name}.conv1", f"{name}.bn1", f"{name}.relu"), width, 3, stride=stride)
    y = net.conv_norm(y, f"{name}.conv2", f"{name}.bn2", width, 3, gain=RESIDUAL_GAIN)
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
    y = net.layer(x, (f"{name}.conv1", f"{name}.bn1", f"{name}.relu"), inner, 1, stride=first)
    names = (f"{name}.conv2", f"{name}.bn2", f"{name}.relu_1")
    y = net.layer(y, names, inner, 3, stride=second, groups=groups)
    y = net.conv_norm(y, f"{name}.conv3", f"{name}.bn3", width * EXPANSION, 1, gain=RESIDUAL_GAIN)
    return net.relu(net.add(y, _shortcut(net, x, y, name, stride), name), f"{name}.relu_2")


def _shortcut(net: NetworkBuilder, x: Value, y: Value, name: str, stride: int) -> Value:
    if stride == 1 and x.channels == y.channels:
        return x
    name = f"{name}.downsample"
    return net.conv_norm(x, f"{name}.0", f"{name}.1", y.channels, 1, stride=stride)


resnet18 = partial(_resnet, block=_basic_block, counts=(2, 2, 2, 2))
resnet34 = partial(_resnet, block=_basic_block, counts=(3, 4, 6, 3))
resnet50 = partial(_resnet, block=bottleneck, counts=(3, 4, 6, 3))
resnet101 = partial(_resnet, block=bottleneck, counts=(3, 4, 23, 3))
resnet152 = partial(_resnet, block=bottleneck, counts=(3, 8, 36, 3))
resnext50_32x4d = partial(
    _resnet, block=partial(bottleneck, groups=32, widening=2), counts=(3, 4, 6, 3)
)
