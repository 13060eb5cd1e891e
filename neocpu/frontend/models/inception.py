"""Inception-v3 as in torchvision, without the auxiliary classifier that only training uses.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer Vision,
CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value
from neocpu.frontend.models.windows import Extents

BATCH_NORM_EPSILON = 1e-3


def inception_v3(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """Inception-v3: eleven blocks of parallel branches, after six layers."""
    net = NetworkBuilder("inception_v3", shape, seed)
    x = _conv(net, net.input, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = _conv(net, x, "Conv2d_2a_3x3", 32, 3)
    x = _same(net, x, "Conv2d_2b_3x3", 64, (3, 3))
    x = net.max_pool(x, "maxpool1", 3, stride=2)
    x = _conv(net, x, "Conv2d_3b_1x1", 80, 1)
    x = _conv(net, x, "Conv2d_4a_3x3", 192, 3)
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
    return net.finish(net.classifier(x, "fc", 1000))


def _block_a(net: NetworkBuilder, x: Value, name: str, pooled: int) -> Value:
    """Blocks at 35x35: 1x1, 5x5, two 3x3, and an average of ``pooled`` channels."""
    one = _conv(net, x, f"{name}.branch1x1", 64, 1)
    five = _conv(net, x, f"{name}.branch5x5_1", 48, 1)
    five = _same(net, five, f"{name}.branch5x5_2", 64, (5, 5))
    three = _conv(net, x, f"{name}.branch3x3dbl_1", 64, 1)
    three = _same(net, three, f"{name}.branch3x3dbl_2", 96, (3, 3))
    three = _same(net, three, f"{name}.branch3x3dbl_3", 96, (3, 3))
    return net.concat([one, five, three, _pool_branch(net, x, name, pooled)], name)


def _block_b(net: NetworkBuilder, x: Value, name: str) -> Value:
    """A block that reduces 35x35 to 17x17."""
    three = _conv(net, x, f"{name}.branch3x3", 384, 3, stride=2)
    double = _conv(net, x, f"{name}.branch3x3dbl_1", 64, 1)
    double = _same(net, double, f"{name}.branch3x3dbl_2", 96, (3, 3))
    double = _conv(net, double, f"{name}.branch3x3dbl_3", 96, 3, stride=2)
    return net.concat([three, double, net.max_pool(x, f"{name}.pool", 3, stride=2)], name)


def _block_c(net: NetworkBuilder, x: Value, name: str, width: int) -> Value:
    """Blocks at 17x17: 7x7 convolutions, each as a row and a column of seven."""
    row, column = (1, 7), (7, 1)
    one = _conv(net, x, f"{name}.branch1x1", 192, 1)
    seven = _conv(net, x, f"{name}.branch7x7_1", width, 1)
    seven = _same(net, seven, f"{name}.branch7x7_2", width, row)
    seven = _same(net, seven, f"{name}.branch7x7_3", 192, column)
    double = _conv(net, x, f"{name}.branch7x7dbl_1", width, 1)
    double = _same(net, double, f"{name}.branch7x7dbl_2", width, column)
    double = _same(net, double, f"{name}.branch7x7dbl_3", width, row)
    double = _same(net, double, f"{name}.branch7x7dbl_4", width, column)
    double = _same(net, double, f"{name}.branch7x7dbl_5", 192, row)
    return net.concat([one, seven, double, _pool_branch(net, x, name, 192)], name)


def _block_d(net: NetworkBuilder, x: Value, name: str) -> Value:
    """A block that reduces 17x17 to 8x8."""
    three = _conv(net, x, f"{name}.branch3x3_1", 192, 1)
    three = _conv(net, three, f"{name}.branch3x3_2", 320, 3, stride=2)
    seven = _conv(net, x, f"{name}.branch7x7x3_1", 192, 1)
    seven = _same(net, seven, f"{name}.branch7x7x3_2", 192, (1, 7))
    seven = _same(net, seven, f"{name}.branch7x7x3_3", 192, (7, 1))
    seven = _conv(net, seven, f"{name}.branch7x7x3_4", 192, 3, stride=2)
    return net.concat([three, seven, net.max_pool(x, f"{name}.pool", 3, stride=2)], name)


def _block_e(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Blocks at 8x8: 3x3 convolutions split into a row and a column in parallel."""
    one = _conv(net, x, f"{name}.branch1x1", 320, 1)
    three = _conv(net, x, f"{name}.branch3x3_1", 384, 1)
    three = _row_and_column(net, three, f"{name}.branch3x3_2")
    double = _conv(net, x, f"{name}.branch3x3dbl_1", 448, 1)
    double = _same(net, double, f"{name}.branch3x3dbl_2", 384, (3, 3))
    double = _row_and_column(net, double, f"{name}.branch3x3dbl_3")
    return net.concat([one, three, double, _pool_branch(net, x, name, 192)], name)


def _row_and_column(net: NetworkBuilder, x: Value, name: str) -> Value:
    row = _same(net, x, f"{name}a", 384, (1, 3))
    column = _same(net, x, f"{name}b", 384, (3, 1))
    return net.concat([row, column], name)


def _pool_branch(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    x = net.average_pool(x, f"{name}.avg_pool", 3, stride=1, padding=1)
    return _conv(net, x, f"{name}.branch_pool", channels, 1)


def _same(
    net: NetworkBuilder, x: Value, name: str, channels: int, kernel: tuple[int, int]
) -> Value:
    """Add a convolution with padding that keeps the image size."""
    height, width = kernel
    return _conv(net, x, name, channels, kernel, padding=(height // 2, width // 2))


def _conv(
    net: NetworkBuilder,
    x: Value,
    name: str,
    channels: int,
    kernel: Extents,
    *,
    stride: int = 1,
    padding: Extents = 0,
) -> Value:
    x = net.conv(x, f"{name}.conv", channels, kernel, stride=stride, padding=padding)
    x = net.batch_norm(x, f"{name}.bn", epsilon=BATCH_NORM_EPSILON)
    return net.relu(x, f"{name}.relu")
