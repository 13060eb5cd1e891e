"""Networks that concatenate features: DenseNet-BC and Inception-v3 as in torchvision, and U-Net.

Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, CVPR 2017.
Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer Vision,
CVPR 2016; without the auxiliary classifier that only training uses. Ronneberger, Fischer, Brox:
U-Net: Convolutional Networks for Biomedical Image Segmentation, MICCAI 2015; as in
``milesial/Pytorch-UNet``. The paper's convolutions are not padded, and its skip connections are
cropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from neocpu.frontend.models.network_builder import Extents, NetworkBuilder, Value, numbered

BOTTLENECK = 4  # channels of a 1x1, in units of the growth
INCEPTION_EPSILON = 1e-3
STEM_CHANNELS = 64
LEVELS = 4
CLASSES = 1


def _densenet(net: NetworkBuilder, *, blocks: Sequence[int], growth: int, stem: int) -> Value:
    """Every layer concatenates all earlier features of its block."""
    x = net.layer(
        net.input, [f"features.{n}0" for n in ("conv", "norm", "relu")], stem, 7, stride=2
    )
    x = net.max_pool(x, "features.pool0", 3, stride=2, padding=1)
    for number, layers in enumerate(blocks, start=1):
        x = _dense_block(net, x, f"features.denseblock{number}", layers, growth)
        if number < len(blocks):
            x = _transition(net, x, f"features.transition{number}")
    x = net.relu(net.batch_norm(x, "features.norm5"), "relu")
    return net.classifier(x, "classifier", 1000)


def _dense_block(net: NetworkBuilder, x: Value, name: str, layers: int, growth: int) -> Value:
    features = [x]
    for number in range(1, layers + 1):
        layer = f"{name}.denselayer{number}"
        y = net.concat(features, layer)
        y = net.relu(net.batch_norm(y, f"{layer}.norm1"), f"{layer}.relu1")
        names = (f"{layer}.conv1", f"{layer}.norm2", f"{layer}.relu2")
        y = net.layer(y, names, BOTTLENECK * growth, 1)
        features.append(net.conv(y, f"{layer}.conv2", growth, 3, padding=1))
    return net.concat(features, name)


def _transition(net: NetworkBuilder, x: Value, name: str) -> Value:
    x = net.relu(net.batch_norm(x, f"{name}.norm"), f"{name}.relu")
    x = net.conv(x, f"{name}.conv", x.channels // 2, 1)
    return net.average_pool(x, f"{name}.pool", 2, stride=2)


densenet121 = partial(_densenet, blocks=(6, 12, 24, 16), growth=32, stem=64)
densenet161 = partial(_densenet, blocks=(6, 12, 36, 24), growth=48, stem=96)
densenet169 = partial(_densenet, blocks=(6, 12, 32, 32), growth=32, stem=64)
densenet201 = partial(_densenet, blocks=(6, 12, 48, 32), growth=32, stem=64)


def inception_v3(net: NetworkBuilder) -> Value:
    """Inception-v3: eleven blocks of parallel branches, after six layers."""
    x = _conv(net, net.input, "Conv2d_1a_3x3", 32, 3, stride=2, padding=0)
    x = _conv(net, x, "Conv2d_2a_3x3", 32, 3, padding=0)
    x = _conv(net, x, "Conv2d_2b_3x3", 64, 3)
    x = net.max_pool(x, "maxpool1", 3, stride=2)
    x = _conv(net, x, "Conv2d_3b_1x1", 80, 1)
    x = _conv(net, x, "Conv2d_4a_3x3", 192, 3, padding=0)
    x = net.max_pool(x, "maxpool2", 3, stride=2)
    x = _block_a(net, x, "Mixed_5b", 32)
    x = _block_a(net, x, "Mixed_5c", 64)
    x = _block_a(net, x, "Mixed_5d", 64)
    x = _block_b(net, x, "Mixed_6a")
    x = _block_c(net, x, "Mixed_6b", 128)
    x = _block_c(net, x, "Mixed_6c", 160)
    x = _block_c(net, x, "Mixed_6d", 160)
    x = _block_c(net, x, "Mixed_6e", 192)
    x = _block_d(net, x, "Mixed_7a")
    x = _block_e(net, x, "Mixed_7b")
    x = _block_e(net, x, "Mixed_7c")
    return net.classifier(x, "fc", 1000)


def _block_a(net: NetworkBuilder, x: Value, name: str, pooled: int) -> Value:
    """Blocks at 35x35: 1x1, 5x5, two 3x3, and an average of ``pooled`` channels."""
    one = _conv(net, x, f"{name}.branch1x1", 64, 1)
    five = _conv(net, x, f"{name}.branch5x5_1", 48, 1)
    five = _conv(net, five, f"{name}.branch5x5_2", 64, 5)
    three = _conv(net, x, f"{name}.branch3x3dbl_1", 64, 1)
    three = _conv(net, three, f"{name}.branch3x3dbl_2", 96, 3)
    three = _conv(net, three, f"{name}.branch3x3dbl_3", 96, 3)
    return net.concat([one, five, three, _pool_branch(net, x, name, pooled)], name)


def _block_b(net: NetworkBuilder, x: Value, name: str) -> Value:
    """A block that reduces 35x35 to 17x17."""
    three = _conv(net, x, f"{name}.branch3x3", 384, 3, stride=2, padding=0)
    double = _conv(net, x, f"{name}.branch3x3dbl_1", 64, 1)
    double = _conv(net, double, f"{name}.branch3x3dbl_2", 96, 3)
    double = _conv(net, double, f"{name}.branch3x3dbl_3", 96, 3, stride=2, padding=0)
    return net.concat([three, double, net.max_pool(x, f"{name}.pool", 3, stride=2)], name)


def _block_c(net: NetworkBuilder, x: Value, name: str, width: int) -> Value:
    """Blocks at 17x17: 7x7 convolutions, each as a row and a column of seven."""
    row, column = (1, 7), (7, 1)
    one = _conv(net, x, f"{name}.branch1x1", 192, 1)
    seven = _conv(net, x, f"{name}.branch7x7_1", width, 1)
    seven = _conv(net, seven, f"{name}.branch7x7_2", width, row)
    seven = _conv(net, seven, f"{name}.branch7x7_3", 192, column)
    double = _conv(net, x, f"{name}.branch7x7dbl_1", width, 1)
    double = _conv(net, double, f"{name}.branch7x7dbl_2", width, column)
    double = _conv(net, double, f"{name}.branch7x7dbl_3", width, row)
    double = _conv(net, double, f"{name}.branch7x7dbl_4", width, column)
    double = _conv(net, double, f"{name}.branch7x7dbl_5", 192, row)
    return net.concat([one, seven, double, _pool_branch(net, x, name, 192)], name)


def _block_d(net: NetworkBuilder, x: Value, name: str) -> Value:
    """A block that reduces 17x17 to 8x8."""
    three = _conv(net, x, f"{name}.branch3x3_1", 192, 1)
    three = _conv(net, three, f"{name}.branch3x3_2", 320, 3, stride=2, padding=0)
    seven = _conv(net, x, f"{name}.branch7x7x3_1", 192, 1)
    seven = _conv(net, seven, f"{name}.branch7x7x3_2", 192, (1, 7))
    seven = _conv(net, seven, f"{name}.branch7x7x3_3", 192, (7, 1))
    seven = _conv(net, seven, f"{name}.branch7x7x3_4", 192, 3, stride=2, padding=0)
    return net.concat([three, seven, net.max_pool(x, f"{name}.pool", 3, stride=2)], name)


def _block_e(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Blocks at 8x8: 3x3 convolutions split into a row and a column in parallel."""
    one = _conv(net, x, f"{name}.branch1x1", 320, 1)
    three = _conv(net, x, f"{name}.branch3x3_1", 384, 1)
    three = _row_and_column(net, three, f"{name}.branch3x3_2")
    double = _conv(net, x, f"{name}.branch3x3dbl_1", 448, 1)
    double = _conv(net, double, f"{name}.branch3x3dbl_2", 384, 3)
    double = _row_and_column(net, double, f"{name}.branch3x3dbl_3")
    return net.concat([one, three, double, _pool_branch(net, x, name, 192)], name)


def _row_and_column(net: NetworkBuilder, x: Value, name: str) -> Value:
    row = _conv(net, x, f"{name}a", 384, (1, 3))
    column = _conv(net, x, f"{name}b", 384, (3, 1))
    return net.concat([row, column], name)


def _pool_branch(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    x = net.average_pool(x, f"{name}.avg_pool", 3, stride=1, padding=1)
    return _conv(net, x, f"{name}.branch_pool", channels, 1)


def _conv(
    net: NetworkBuilder,
    x: Value,
    name: str,
    channels: int,
    kernel: Extents,
    *,
    stride: int = 1,
    padding: int | None = None,
) -> Value:
    names = (f"{name}.conv", f"{name}.bn", f"{name}.relu")
    epsilon = INCEPTION_EPSILON
    return net.layer(x, names, channels, kernel, stride=stride, padding=padding, epsilon=epsilon)


def unet(net: NetworkBuilder) -> Value:
    """U-Net of 64 to 1024 channels; its output is an image of logits, as large as the input."""
    x = _double_conv(net, net.input, "inc", STEM_CHANNELS)
    skips = []
    for level in range(1, LEVELS + 1):
        skips.append(x)
        x = net.max_pool(x, f"down{level}.maxpool_conv.0", 2, stride=2)
        x = _double_conv(net, x, f"down{level}.maxpool_conv.1", STEM_CHANNELS << level)
    for number, skip in enumerate(reversed(skips), start=1):
        name = f"up{number}"
        x = net.conv_transpose(x, f"{name}.up", skip.channels, 2, stride=2)
        x = net.concat([skip, _pad_to(net, x, name, skip.image)], name)
        x = _double_conv(net, x, f"{name}.conv", skip.channels)
    return net.conv(x, "outc.conv", CLASSES, 1, bias=True)


def _double_conv(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    for first in (0, 3):
        x = net.layer(x, numbered(f"{name}.double_conv", first), channels, 3)
    return x


def _pad_to(net: NetworkBuilder, x: Value, name: str, image: tuple[int, int]) -> Value:
    """Add the row and the column that the pooling of an odd image drops."""
    if x.image == image:
        return x
    missing = [size - have for size, have in zip(image, x.image, strict=True)]
    before = [lost // 2 for lost in missing]
    after = [lost - first for lost, first in zip(missing, before, strict=True)]
    pads = net.constant(f"{name}.pads", np.array([0, 0, *before, 0, 0, *after], np.int64))
    shape = (*x.shape[:2], *image)
    return net.node("Pad", [x, pads], name, shape, spread=x.spread, rectified=x.rectified)
