"""Detectors: SSD on ResNet-50, with its suppression, and YOLOv3-tiny.

Liu et al.: SSD: Single Shot MultiBox Detector, ECCV 2016; as GluonCV's ``ssd_512_resnet50_v1_voc``.
Six feature maps of 1/16 to 1/512 of the image, a 3x3 class and a 3x3 box predictor on each, boxes
relative to anchors, and non-maximum suppression for each of the 20 classes of Pascal VOC. Redmon,
Farhadi: YOLOv3: An Incremental Improvement, 2018; with the modules of ``ultralytics/yolov3``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from neocpu.frontend.models.emitter import UNKNOWN
from neocpu.frontend.models.network_builder import NetworkBuilder, Value, numbered
from neocpu.frontend.models.resnet import bottleneck, stages

SSD_CLASSES = 20
BLOCKS = (3, 4, 6, 3)
EXTRA_CHANNELS = (512, 512, 256, 256)

# Boxes are encoded in units of an anchor's size times these.
CENTRE_VARIANCE = 0.1
SIZE_VARIANCE = 0.2

SCORE_THRESHOLD = 0.01
IOU_THRESHOLD = 0.45
BOXES_PER_CLASS = 100

# A trained detector finds background almost everywhere. With these, a noise image has a hundred or
# two boxes above the threshold, so far from it and from each other that rounding seldom decides.
CLASS_GAIN = 2.0
BACKGROUND_BIAS = 19.0
BOX_GAIN = 0.4


@dataclass(frozen=True, slots=True)
class AnchorGrid:
    """The anchors of one feature map, in pixels of the image."""

    step: int  # between anchors
    size: float  # the side of a square anchor
    next_size: float  # that of the next coarser map; another square's is their geometric mean
    ratios: tuple[float, ...]  # width to height of the others, of the first one's area

    @property
    def per_cell(self) -> int:
        """The anchors of each pixel of the feature map."""
        return 2 + len(self.ratios)

    def boxes(self, height: int, width: int) -> NDArray[np.float64]:
        """Return ``(height * width * per_cell, 4)`` pixels: centre x and y, width and height."""
        middle = sqrt(self.size * self.next_size)
        extents = [(self.size, self.size), (middle, middle)]
        extents += [(self.size * sqrt(r), self.size / sqrt(r)) for r in self.ratios]
        boxes = np.empty((height, width, self.per_cell, 4))
        boxes[..., 0] = (np.arange(width)[None, :, None] + 0.5) * self.step
        boxes[..., 1] = (np.arange(height)[:, None, None] + 0.5) * self.step
        boxes[..., 2:] = extents
        return boxes.reshape(-1, 4)


SSD_ANCHORS = (
    AnchorGrid(16, 51.2, 102.4, (2, 1 / 2)),
    AnchorGrid(32, 102.4, 189.4, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(64, 189.4, 276.4, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(128, 276.4, 363.52, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(256, 363.52, 450.6, (2, 1 / 2)),
    AnchorGrid(512, 450.6, 492.0, (2, 1 / 2)),
)

YOLO_CLASSES = 80
LEAKY_SLOPE = 0.1
# The sizes of boxes are exponentials of the last convolution's output.
HEAD_GAIN = 0.2

# Width and height in pixels, by the step of the anchors' grid.
YOLO_ANCHORS = {32: ((81, 82), (135, 169), (344, 319)), 16: ((10, 14), (23, 27), (37, 58))}


def ssd_resnet50(net: NetworkBuilder) -> dict[str, Value]:
    """SSD-ResNet-50 with decoded, suppressed boxes.

    Its outputs have a row for each detection of any image: ``boxes`` (left, top, right and bottom
    in pixels), ``labels`` (0 to 19), ``scores`` and ``images`` (the index in the batch).
    """
    block = partial(bottleneck, stride_first=True)
    features = stages(net, block, BLOCKS)[2:]
    for number, channels in enumerate(EXTRA_CHANNELS):
        x = net.layer(features[-1], numbered(f"extras.{number}"), channels, 1)
        features.append(net.layer(x, numbered(f"extras.{number}", 3), channels, 3, stride=2))
    logits, offsets = _all_predictors(net, features)
    anchors = np.concatenate(
        [grid.boxes(*x.image) for grid, x in zip(SSD_ANCHORS, features, strict=True)]
    )
    return _suppress(net, _boxes(net, offsets, anchors), _scores(net, logits))


def _all_predictors(net: NetworkBuilder, features: Sequence[Value]) -> tuple[Value, Value]:
    """Return logits ``(N, anchors, 21)``, background first, and offsets ``(N, anchors, 4)``."""
    logits, offsets = [], []
    background = np.zeros(SSD_CLASSES + 1, np.float32)
    background[0] = BACKGROUND_BIAS
    for number, (x, grid) in enumerate(zip(features, SSD_ANCHORS, strict=True)):
        bias = np.tile(background, grid.per_cell)
        logits.append(_predictor(net, x, f"class_predictors.{number}", bias, grid, CLASS_GAIN))
        bias = np.zeros(4 * grid.per_cell, np.float32)
        offsets.append(_predictor(net, x, f"box_predictors.{number}", bias, grid, BOX_GAIN))
    joined = net.concat(logits, "class_predictors", axis=1)
    return joined, net.concat(offsets, "box_predictors", axis=1)


def _predictor(
    net: NetworkBuilder,
    x: Value,
    name: str,
    bias: NDArray[np.float32],
    grid: AnchorGrid,
    gain: float,
) -> Value:
    """Return ``(N, anchors, depth)``, with anchors by row, column and number as in `AnchorGrid`."""
    y = net.conv(x, name, len(bias), 3, padding=1, bias=bias, gain=gain)
    y = net.transpose(y, name, (0, 2, 3, 1))
    anchors = x.image[0] * x.image[1] * grid.per_cell
    return net.reshape(y, name, (x.batch, anchors, len(bias) // grid.per_cell))


def _boxes(net: NetworkBuilder, offsets: Value, anchors: NDArray[np.float64]) -> Value:
    """Decode offsets: ``(N, anchors, 4)``, left, top, right and bottom in pixels."""

    def constant(name: str, array: NDArray[np.float64]) -> str:
        return net.constant(f"anchors.{name}", array[None].astype(np.float32))

    shape = (offsets.batch, len(anchors), 2)
    centre = net.slice(offsets, "boxes.centre", 0, 2, axis=2)
    scale = constant("scale", CENTRE_VARIANCE * anchors[:, 2:])
    centre = net.node("Mul", [centre, scale], "boxes.centre", shape)
    centre = net.node("Add", [centre, constant("centre", anchors[:, :2])], "boxes.centre", shape)
    size = net.slice(offsets, "boxes.size", 2, 4, axis=2)
    variance = net.constant("anchors.variance", np.array(SIZE_VARIANCE, np.float32))
    size = net.node("Mul", [size, variance], "boxes.log_size", shape)
    size = net.node("Exp", [size], "boxes.size", shape)
    half = net.node("Mul", [size, constant("half", anchors[:, 2:] / 2)], "boxes.half", shape)
    corners = [net.node(op, [centre, half], "boxes", shape) for op in ("Sub", "Add")]
    return net.concat(corners, "boxes", axis=2)


def _scores(net: NetworkBuilder, logits: Value) -> Value:
    """Return the probabilities ``(N, classes, anchors)`` without the background's."""
    scores = net.softmax(logits, "scores", axis=2)
    scores = net.slice(scores, "scores", 1, scores.shape[2], axis=2)
    return net.transpose(scores, "scores", (0, 2, 1))


def _suppress(net: NetworkBuilder, boxes: Value, scores: Value) -> dict[str, Value]:
    """Keep the best boxes of each class, and gather their rows."""
    limits = [
        net.constant("nms.boxes_per_class", np.array([BOXES_PER_CLASS], np.int64)),
        net.constant("nms.iou_threshold", np.array([IOU_THRESHOLD], np.float32)),
        net.constant("nms.score_threshold", np.array([SCORE_THRESHOLD], np.float32)),
    ]
    integer = TensorProto.INT64
    # A row for each box kept: image, class, anchor.
    kept = net.node(
        "NonMaxSuppression", [boxes, scores, *limits], "nms", (UNKNOWN, 3), dtype=integer
    )

    def columns(name: str, numbers: int | list[int], shape: Sequence[int]) -> Value:
        indices = net.constant(f"nms.{name}.columns", np.array(numbers, np.int64))
        return net.node("Gather", [kept, indices], f"nms.{name}", shape, dtype=integer, axis=1)

    rows = columns("rows", [0, 2], (UNKNOWN, 2))
    return {
        "boxes": net.node("GatherND", [boxes, rows], "nms.boxes", (UNKNOWN, 4)),
        "labels": columns("labels", 1, (UNKNOWN,)),
        "scores": net.node("GatherND", [scores, kept], "nms.scores", (UNKNOWN,)),
        "images": columns("images", 0, (UNKNOWN,)),
    }


def yolov3_tiny(net: NetworkBuilder) -> Value:
    """YOLOv3-tiny with decoded boxes, ``(N, boxes, 85)``, with those of the coarse grid first.

    A row has the centre's x and y, the width and the height, in pixels, and the probabilities of
    an object and of the 80 classes of COCO. Suppression is left to the caller.
    """
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
    return net.concat(boxes, "model.20", axis=1)


def _conv(net: NetworkBuilder, x: Value, name: str, channels: int, kernel: int) -> Value:
    x = net.conv_norm(x, f"{name}.conv", f"{name}.bn", channels, kernel)
    return net.leaky_relu(x, f"{name}.act", LEAKY_SLOPE)


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
    anchors = np.array(YOLO_ANCHORS[step], np.float32)
    batch, count, depth = x.batch, len(anchors), 5 + YOLO_CLASSES
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
