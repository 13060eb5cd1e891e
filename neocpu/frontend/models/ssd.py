"""SSD on ResNet-50, as GluonCV's ``ssd_512_resnet50_v1_voc``, with its post-processing.

Liu et al.: SSD: Single Shot MultiBox Detector, ECCV 2016. Six feature maps of 1/16 to 1/512 of the
image, a 3x3 class and a 3x3 box predictor on each, boxes relative to anchors, and non-maximum
suppression for each of the 20 classes of Pascal VOC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from neocpu.frontend.models.emitter import UNKNOWN
from neocpu.frontend.models.network_builder import NetworkBuilder, Value
from neocpu.frontend.models.resnet import bottleneck, stages

CLASSES = 20
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
    """The anchors of one feature map.

    Attributes
    ----------
    step : int
        Pixels of the image between the centres of two cells.
    size, next_size : float
        The side of the square anchor in pixels, and that of the next coarser map. A second square
        anchor has their geometric mean.
    ratios : tuple of float
        The width-to-height ratios of the other anchors, which have the first one's area.
    """

    step: int
    size: float
    next_size: float
    ratios: tuple[float, ...]

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


ANCHORS = (
    AnchorGrid(16, 51.2, 102.4, (2, 1 / 2)),
    AnchorGrid(32, 102.4, 189.4, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(64, 189.4, 276.4, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(128, 276.4, 363.52, (2, 1 / 2, 3, 1 / 3)),
    AnchorGrid(256, 363.52, 450.6, (2, 1 / 2)),
    AnchorGrid(512, 450.6, 492.0, (2, 1 / 2)),
)


def ssd_resnet50(shape: Sequence[int], seed: int) -> onnx.ModelProto:
    """SSD-ResNet-50 with decoded, suppressed boxes.

    Its outputs have a row for each detection of any image: ``boxes`` (left, top, right and bottom
    in pixels), ``labels`` (0 to 19), ``scores`` and ``images`` (the index in the batch).
    """
    net = NetworkBuilder("ssd_resnet50", shape, seed)
    block = partial(bottleneck, stride_first=True)
    features = stages(net, block, BLOCKS)[2:]
    for number, channels in enumerate(EXTRA_CHANNELS):
        features.append(_extra(net, features[-1], f"extras.{number}", channels))
    logits, offsets = _predictors(net, features)
    anchors = np.concatenate(
        [grid.boxes(*x.image) for grid, x in zip(ANCHORS, features, strict=True)]
    )
    detections = _suppress(net, _boxes(net, offsets, anchors), _scores(net, logits))
    return net.finish(detections, unknown="detections")


def _extra(net: NetworkBuilder, x: Value, name: str, channels: int) -> Value:
    """Halve the resolution once more."""
    x = net.relu(net.batch_norm(net.conv(x, f"{name}.0", channels, 1), f"{name}.1"), f"{name}.2")
    x = net.conv(x, f"{name}.3", channels, 3, stride=2, padding=1)
    return net.relu(net.batch_norm(x, f"{name}.4"), f"{name}.5")


def _predictors(net: NetworkBuilder, features: Sequence[Value]) -> tuple[Value, Value]:
    """Return logits ``(N, anchors, 21)``, background first, and offsets ``(N, anchors, 4)``."""
    logits, offsets = [], []
    background = np.zeros(CLASSES + 1, np.float32)
    background[0] = BACKGROUND_BIAS
    for number, (x, grid) in enumerate(zip(features, ANCHORS, strict=True)):
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
