"""SSD-ResNet-50 against GluonCV's figures, and its post-processing against a plain one."""

import itertools
import math

import numpy as np
import pytest
from network_measures import multiply_accumulates, parameters, random_image, run

from neocpu.frontend.models import MODELS, build
from neocpu.frontend.models.detectors import SSD_ANCHORS

# GluonCV's ssd_512_resnet50_v1_voc.
SIZES = [51.2, 102.4, 189.4, 276.4, 363.52, 450.6, 492]
RATIOS = [[1, 2, 0.5]] + [[1, 2, 0.5, 3, 1.0 / 3]] * 3 + [[1, 2, 0.5]] * 2
STEPS = [16, 32, 64, 128, 256, 512]
PER_CELL = [4, 6, 6, 6, 4, 4]

MAPS = range(len(STEPS))
LOGITS = [f"/class_predictors/{k}/Conv_output_0" for k in MAPS]
OFFSETS = [f"/box_predictors/{k}/Conv_output_0" for k in MAPS]
IMAGE = (256, 300)


@pytest.fixture(scope="module")
def ssd():
    return build("ssd_resnet50")


@pytest.fixture(scope="module")
def usual(ssd):
    """Return the outputs of every layer for one image of the usual size."""
    depths = [n.output[0] for n in ssd.graph.node if n.op_type in ("Conv", "Add")]
    return run(ssd, random_image(1, 3, 512, 512), *depths)


@pytest.fixture(scope="module")
def detections():
    """Return the detections and raw predictions of a batch of two images of another size."""
    model = build("ssd_resnet50", batch=2, image=IMAGE)
    return run(model, random_image(2, 3, *IMAGE), *LOGITS, *OFFSETS)


def _anchors(height, width):
    """Centre x and y, width and height, one by one."""
    boxes = []
    for k, step in enumerate(STEPS):
        side, middle = SIZES[k], math.sqrt(SIZES[k] * SIZES[k + 1])
        rows, columns = math.ceil(height / step), math.ceil(width / step)
        for i, j in itertools.product(range(rows), range(columns)):
            x, y = (j + 0.5) * step, (i + 0.5) * step
            boxes += [(x, y, side, side), (x, y, middle, middle)]
            boxes += [(x, y, side * r**0.5, side / r**0.5) for r in RATIOS[k][1:]]
    return np.array(boxes)


def _rows(maps, depth):
    """Join predictions ``(N, anchors * depth, H, W)`` as ``(N, all anchors, depth)``."""
    rows = [m.transpose(0, 2, 3, 1).reshape(len(m), -1, depth) for m in maps]
    return np.concatenate(rows, axis=1).astype(np.float64)


def _decode(offsets, anchors):
    x, y, width, height = anchors.T
    dx, dy, dw, dh = np.moveaxis(offsets, -1, 0)
    x, y = x + 0.1 * dx * width, y + 0.1 * dy * height
    width, height = width * np.exp(0.2 * dw), height * np.exp(0.2 * dh)
    return np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=-1)


def _overlap(a, b):
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared)


def _suppress(boxes, scores):
    """Indices of the boxes of one class that no better one overlaps."""
    kept = []
    for index in np.argsort(-scores):
        if scores[index] <= 0.01 or len(kept) == 100:
            break
        if all(_overlap(boxes[index], boxes[other]) <= 0.45 for other in kept):
            kept.append(index)
    return kept


def test_has_a_row_for_each_detection(ssd):
    outputs = {
        output.name: [d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim]
        for output in ssd.graph.output
    }
    rows = ["detections"]
    assert outputs == {"boxes": [*rows, 4], "labels": rows, "scores": rows, "images": rows}


def test_parameters_follow_from_the_layers(ssd):
    backbone = 25_557_032 - 1000 * (2048 + 1)  # ResNet-50 without its last layer
    extras, below = 0, 2048
    for width in (512, 512, 256, 256):
        extras += below * width + 9 * width * width + 2 * 2 * width
        below = width
    channels = [1024, 2048, 512, 512, 256, 256]
    heads = sum((9 * c + 1) * n * (21 + 4) for c, n in zip(channels, PER_CELL, strict=True))
    assert parameters(ssd) == backbone + extras + heads == MODELS["ssd_resnet50"].parameters


def test_multiply_accumulates_follow_from_the_layers(ssd):
    backbone = 3.856e9 * (512 / 224) ** 2  # the paper's 3.8 of ResNet-50, without its last layer
    extras, below, pixels = 0, 2048, 16 * 16
    for width in (512, 512, 256, 256):
        extras += pixels * below * width + pixels // 4 * 9 * width * width
        below, pixels = width, pixels // 4
    channels, cells = [1024, 2048, 512, 512, 256, 256], [1024, 256, 64, 16, 4, 1]
    heads = sum(
        9 * c * n * (21 + 4) * area for c, n, area in zip(channels, PER_CELL, cells, strict=True)
    )
    total = multiply_accumulates(ssd)
    assert total == pytest.approx(backbone + extras + heads, rel=1e-3)
    assert MODELS["ssd_resnet50"].gmacs == round(total / 1e9, 3)


def test_anchors_are_gluoncvs():
    boxes = [g.boxes(512 // s, 512 // s) for g, s in zip(SSD_ANCHORS, STEPS, strict=True)]
    assert [g.per_cell for g in SSD_ANCHORS] == PER_CELL
    assert sum(map(len, boxes)) == 6132
    np.testing.assert_allclose(np.concatenate(boxes), _anchors(512, 512))


def test_detections_are_those_of_a_plain_suppression(detections):
    boxes = _decode(_rows([detections[name] for name in OFFSETS], 4), _anchors(*IMAGE))
    logits = _rows([detections[name] for name in LOGITS], 21)
    scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    kept = [
        (image, label, index)
        for image in range(2)
        for label in range(20)
        for index in _suppress(boxes[image], scores[image, :, label + 1])
    ]
    images, labels, indices = np.transpose(kept)
    np.testing.assert_array_equal(detections["images"], images)
    np.testing.assert_array_equal(detections["labels"], labels)
    np.testing.assert_allclose(detections["scores"], scores[images, indices, labels + 1], rtol=1e-4)
    np.testing.assert_allclose(detections["boxes"], boxes[images, indices], rtol=1e-4, atol=1e-2)


def test_detections_are_several_with_different_scores(usual):
    assert 50 < len(usual["scores"]) < 500
    assert len(np.unique(usual["labels"])) > 10
    assert usual["scores"].max() > 0.3
    assert np.diff(np.sort(usual["scores"])).min() > 0
    sides = usual["boxes"][:, 2:] - usual["boxes"][:, :2]
    assert sides.min() > 20
    assert sides.max() < 700


def test_activations_keep_their_scale_at_every_depth(usual):
    depths = [name for name in usual if name.startswith(("/conv1", "/layer", "/extras"))]
    assert len(depths) == 53 + 16 + 8
    assert all(0.2 < usual[depth].std() < 20 for depth in depths)
