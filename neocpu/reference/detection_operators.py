"""NonMaxSuppression in numpy, for the reference: a vector operation per selected box."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array: TypeAlias = npt.NDArray[Any]


class NonMaxSuppression(OpRun):  # type: ignore[misc]
    """The best boxes of each image and class that do not overlap a better one.

    Equal scores go by index, as in ONNX Runtime; the standard leaves their order open.
    """

    def _run(
        self,
        boxes: Array,
        scores: Array,
        max_output_boxes_per_class: Array | None = None,
        iou_threshold: Array | None = None,
        score_threshold: Array | None = None,
        center_point_box: int = 0,
    ) -> tuple[Array]:
        limit = _scalar(max_output_boxes_per_class, 0)
        overlap = np.float32(_scalar(iou_threshold, 0.0))
        rows = []
        for image, (image_boxes, classes) in enumerate(zip(boxes, scores, strict=True)):
            corners = _corners(image_boxes, bool(center_point_box))
            for label, score in enumerate(classes):
                taken = score >= -math.inf  # a score that is not a number is not
                if score_threshold is not None:
                    taken = score > np.float32(_scalar(score_threshold, 0.0))
                order = np.flatnonzero(taken)
                order = order[np.argsort(-score[order], kind="stable")]
                rows += [(image, label, box) for box in _select(corners, order, limit, overlap)]
        return (np.array(rows, np.int64).reshape(-1, 3),)


def _scalar(value: Array | None, default: float) -> Any:
    return default if value is None else value.item()


def _corners(boxes: Array, center: bool) -> Array:
    """Return the least and the largest coordinates and the area of each box: five rows."""
    if center:
        half = boxes[:, 2:] / 2
        low, high = boxes[:, :2] - half, boxes[:, :2] + half
    else:
        low = np.minimum(boxes[:, :2], boxes[:, 2:])
        high = np.maximum(boxes[:, :2], boxes[:, 2:])
    with np.errstate(all="ignore"):
        extent = high - low
        return np.vstack([low.T, high.T, extent[:, 0] * extent[:, 1]])


def _select(corners: Array, order: Array, limit: int, overlap: np.float32) -> list[int]:
    """Return the boxes that are left of ``order``, best first."""
    selected: list[int] = []
    while order.size and len(selected) < limit:
        best, order = order[0], order[1:]
        selected.append(int(best))
        one, others = corners[:, best, None], corners[:, order]
        with np.errstate(all="ignore"):
            extent = np.minimum(one[2:4], others[2:4]) - np.maximum(one[:2], others[:2])
            extent = np.maximum(extent, 0)
            shared = extent[0] * extent[1]
            suppressed = shared / (one[4] + others[4] - shared) > overlap
        order = order[~suppressed]
    return selected
