"""U-Net with padded convolutions and batch norms, as in ``milesial/Pytorch-UNet``.

Ronneberger, Fischer, Brox: U-Net: Convolutional Networks for Biomedical Image Segmentation, MICCAI
2015. The paper's convolutions are not padded, and its skip connections are cropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

STEM_CHANNELS = 64
LEVELS = 4
CLASSES = 1


def unet(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """U-Net of 64 to 1024 channels; its output is an image of logits, as large as the input."""
    net = NetworkBuilder("unet", shape, seed)
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
    return net.finish(net.conv(x, "outc.conv", CLASSES, 1, bias=True))


def _double_conv(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    for index in (0, 3):
        layer = f"{name}.double_conv"
        x = net.conv(x, f"{layer}.{index}", channels, 3, padding=1)
        x = net.batch_norm(x, f"{layer}.{index + 1}")
        x = net.relu(x, f"{layer}.{index + 2}")
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
