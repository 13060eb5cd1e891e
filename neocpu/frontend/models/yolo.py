"""Darknet's YOLOv3-tiny, with its modules numbered as in ``ultralytics/yolov3``.

Redmon, Farhadi: YOLOv3: An Incremental Improvement, 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from neocpu.frontend.models.network_builder import NetworkBuilder, Value

CLASSES = 80
LEAKY_SLOPE = 0.1
# The sizes of boxes are exponentials of the last convolution's output.
HEAD_GAIN = 0.2

# Width and height in pixels, by the step of the anchors' grid.
ANCHORS = {32: ((81, 82), (135, 169), (344, 319)), 16: ((10, 14), (23, 27), (37, 58))}


def yolov3_tiny(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """YOLOv3-tiny with decoded boxes, ``(N, boxes, 85)``, with those of the coarse grid first.

    A row has the centre's x and y, the width and the height, in pixels, and the probabilities of
    an object and of the 80 classes of COCO. Suppression is left to the caller.
    """
    net = NetworkBuilder("yolov3_tiny", shape, seed)
    x = net.input
    for stage in range(4):
        x = _conv(net, x, f"model.{2 * stage}", 16 << stage, 3)
        # Odd images round up here, as in Darknet.
        x = net.max_pool(x, f"model.{2 * stage + 1}", 2, stride=2, ceil_mode=True)
    fine = _conv(net, x, "model.8", 256, 3)
    x = net.max_pool(fine, "model.9", 2, stride=2, ceil_mode=True)
    x = _conv(net, x, "model.10", 512, 3)
    x = _same_max_pool(net, x, "model.12")
    x = _conv(net, x, "model.13", 1024, 3)
    neck = _conv(net, x, "model.14", 256, 1)
    coarse = _conv(net, neck, "model.15", 512, 3)
    x = net.upsample(_conv(net, neck, "model.16", 128, 1), "model.17", 2)
    x = net.concat([_crop(net, x, "model.17", fine.image), fine], "model.18")
    fine = _conv(net, x, "model.19", 256, 3)
    boxes = [_detect(net, coarse, "model.20.m.1", 32), _detect(net, fine, "model.20.m.0", 16)]
    return net.finish(net.concat(boxes, "model.20", axis=1))


def _conv(net: NetworkBuilder, x: Value, name: str, channels: int, kernel: int) -> Value:
    x = net.conv(x, f"{name}.conv", channels, kernel, padding=kernel // 2)
    return net.leaky_relu(net.batch_norm(x, f"{name}.bn"), f"{name}.act", LEAKY_SLOPE)


def _same_max_pool(net: NetworkBuilder, x: Value, name: str) -> Value:
    """Add a 2x2 pooling with stride 1, padded at the right and at the bottom only."""
    return net.node(
        "MaxPool",
        [x],
        name,
        x.shape,
        spread=x.spread,
        rectified=x.rectified,
        kernel_shape=[2, 2],
        strides=[1, 1],
        pads=[0, 0, 1, 1],
    )


def _crop(net: NetworkBuilder, x: Value, name: str, image: tuple[int, int]) -> Value:
    """Drop the row and the column that the pooling of an odd image adds."""
    for axis, extent in enumerate(image, start=2):
        if x.shape[axis] != extent:
            x = net.slice(x, f"{name}.crop{axis}", 0, extent, axis=axis)
    return x


def _detect(net: NetworkBuilder, x: Value, name: str, step: int) -> Value:
    """Predict and decode the boxes of one grid, by anchor, row and column."""
    anchors = np.array(ANCHORS[step], np.float32)
    batch, count, depth = x.batch, len(anchors), 5 + CLASSES
    height, width = x.image
    y = net.conv(x, name, count * depth, 1, bias=True, gain=HEAD_GAIN)
    y = net.reshape(y, f"{name}.split", (batch, count, depth, height, width))
    y = net.transpose(y, name, (0, 1, 3, 4, 2))

    def constant(key: str, array: NDArray[np.float32]) -> str:
        return net.constant(f"{name}.{key}", array)

    centre = net.sigmoid(net.slice(y, f"{name}.centre", 0, 2, axis=4), f"{name}.centre")
    rows, columns = np.indices((height, width), np.float32)
    cells = constant("cells", np.stack([columns, rows], axis=-1)[None, None])
    centre = net.node("Add", [centre, cells], f"{name}.centre", centre.shape)
    stride = constant("stride", np.array(step, np.float32))
    centre = net.node("Mul", [centre, stride], f"{name}.centre", centre.shape)
    size = net.slice(y, f"{name}.size", 2, 4, axis=4)
    size = net.node("Exp", [size], f"{name}.size", size.shape)
    scale = constant("anchors", anchors[None, :, None, None])
    size = net.node("Mul", [size, scale], f"{name}.size", size.shape)
    scores = net.sigmoid(net.slice(y, f"{name}.scores", 4, depth, axis=4), f"{name}.scores")
    y = net.concat([centre, size, scores], f"{name}.boxes", axis=4)
    return net.reshape(y, f"{name}.boxes", (batch, count * height * width, depth))
