"""Detectors' operators, and further ones on windows, in numpy, for the reference.

onnx's own loop over pixels; its RoiAlign is correct from opset 16 on only, and it has no
MaxRoiPool.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.fast_operators import Window


class NonMaxSuppression(OpRun):  # type: ignore[misc]
    """Select the best boxes that overlap no better one; equal scores by index, as ONNX Runtime."""

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
                taken = score >= -math.inf  # excludes NaN
                if score_threshold is not None:
                    taken = score > np.float32(_scalar(score_threshold, 0.0))
                order = np.flatnonzero(taken)
                order = order[np.argsort(-score[order], kind="stable")]
                rows += [(image, label, box) for box in _select(corners, order, limit, overlap)]
        return (np.array(rows, np.int64).reshape(-1, 3),)


def _scalar(value: Array | None, default: float) -> Any:
    return default if value is None else value.item()


def _corners(boxes: Array, center: bool) -> Array:
    """Return five rows: the least and the largest coordinates of each box, and its area."""
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
    """Return the boxes of ``order`` that are not suppressed, best first."""
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


class RoiAlign(OpRun):  # type: ignore[misc]
    """Regions of feature maps as bins: averages, or maxima, of bilinear samples."""

    def _run(
        self,
        x: Array,
        rois: Array,
        images: Array,
        coordinate_transformation_mode: str | None = None,
        mode: str | None = None,
        output_height: int | None = None,
        output_width: int | None = None,
        sampling_ratio: int | None = None,
        spatial_scale: float | None = None,
    ) -> tuple[Array]:
        # Before opset 16, which named it, there was only one way to place regions.
        named = self.run_params["opsets"][""] >= 16
        half = named and (coordinate_transformation_mode or "half_pixel").lower() == "half_pixel"
        bins = output_height or 1, output_width or 1
        corners = rois * x.dtype.type(spatial_scale or 1.0) - x.dtype.type(0.5 if half else 0)
        largest = (mode or "avg").lower() == "max"
        found = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
        for region, (corner, image) in enumerate(zip(corners, images, strict=True)):
            axes = []
            for axis, size in enumerate(bins):
                start, end = corner[1 - axis], corner[3 - axis]
                extent = end - start if half else max(end - start, x.dtype.type(1))
                axes.append(_samples(start, extent, size, sampling_ratio or 0, x.shape[2 + axis]))
            if all(len(low) for low, _, _ in axes):
                found[region] = _pooled(x[image], axes[0], axes[1], bins, largest=largest)
        return (found,)


_Samples: TypeAlias = tuple[Array, Array, Array]


def _samples(start: Any, extent: Any, bins: int, ratio: int, pixels: int) -> _Samples:
    """Return the pixels before and after each sample in one dimension, and their weights."""
    step = extent / bins
    count = ratio if ratio > 0 else max(0, int(np.ceil(step)))
    within = (np.arange(count, dtype=step.dtype) + 0.5) * step / max(count, 1)
    at = (start + np.arange(bins, dtype=step.dtype)[:, None] * step + within).reshape(-1)
    inside = (at >= -1) & (at <= pixels)
    at = np.clip(at, 0, pixels - 1)
    low = at.astype(np.int64)
    weight = at - low
    both = np.stack([1 - weight, weight]) * inside
    return low, np.minimum(low + 1, pixels - 1), both.astype(step.dtype)


def _pooled(
    image: Array, rows: _Samples, columns: _Samples, bins: tuple[int, int], *, largest: bool
) -> Array:
    corners = [
        image[:, y][:, :, x] * (row[:, None] * column)
        for y, row in zip(rows[:2], rows[2], strict=True)
        for x, column in zip(columns[:2], columns[2], strict=True)
    ]
    values = np.maximum.reduce(corners) if largest else sum(corners)
    split = values.reshape(len(image), bins[0], -1, bins[1], len(columns[0]) // bins[1])
    pooled: Array = split.max(axis=(2, 4)) if largest else split.mean(axis=(2, 4))
    return pooled


class Col2Im(OpRun):  # type: ignore[misc]
    """Columns of windows, added up where they overlap, in any number of dimensions."""

    def _run(self, x: Array, image: Array, block: Array, **attrs: Any) -> tuple[Array]:
        window = Window(image.tolist(), block.tolist(), attrs)
        channels = x.shape[1] // int(np.prod(block))
        columns = x.reshape(len(x), channels, *window.kernel, *window.out)
        extents = [n + sum(ends) for n, ends in zip(image.tolist(), window.pads, strict=True)]
        total = np.zeros((len(x), channels, *extents), x.dtype)
        index: tuple[Any, ...]
        for tap, seen in window.taps(total):
            index = (slice(None), slice(None), *tap)
            seen += columns[index]
        index = (..., *(slice(b, b + n) for (b, _), n in zip(window.pads, image, strict=True)))
        return (np.ascontiguousarray(total[index]),)


class DeformConv(OpRun):  # type: ignore[misc]
    """Convolution of interpolated pixels at offsets, with zeros around the image and for NaN."""

    def _run(
        self,
        x: Array,
        w: Array,
        offset: Array,
        b: Array | None = None,
        mask: Array | None = None,
        **attrs: Any,
    ) -> tuple[Array]:
        groups, parts = attrs.get("group") or 1, attrs.get("offset_group") or 1
        window = Window(x.shape[2:], w.shape[2:], attrs)
        rank, taps = len(window.out), w[0, 0].size
        offsets = offset.reshape(len(x), parts, taps, rank, *window.out)
        factors = None if mask is None else mask.reshape(len(x), parts, 1, taps, *window.out)
        matrix = w.reshape(groups, len(w) // groups, -1)
        y = np.empty((len(x), len(w), *window.out), np.result_type(x, w))
        for number, image in enumerate(x):
            channels = image.reshape(parts, -1, *image.shape[1:])
            columns = np.empty((*channels.shape[:2], taps, *window.out), x.dtype)
            for place, tap in enumerate(product(*map(range, window.kernel))):
                at = offsets[number, :, place] + _starts(window, tap)
                columns[:, :, place] = _interpolated(channels, at)
            if factors is not None:
                columns *= factors[number]
            y[number] = (matrix @ columns.reshape(groups, matrix.shape[2], -1)).reshape(y.shape[1:])
        return (y if b is None else y + b.reshape(-1, *(1,) * rank),)


def _starts(window: Window, tap: tuple[int, ...]) -> Array:
    """Return the image positions of a position in all windows, (dimensions, out)."""
    steps = np.indices(window.out)
    along = (-1, *(1,) * len(window.out))
    begins = np.array(
        [t * d - p for t, d, (p, _) in zip(tap, window.dilations, window.pads, strict=True)]
    )
    return np.asarray(steps * np.reshape(window.strides, along) + begins.reshape(along))


def _interpolated(channels: Array, at: Array) -> Array:
    """Return pixels of ``channels`` (parts, channels, image) at ``at`` (parts, dimensions, out)."""
    extents = channels.shape[2:]
    along = (1, -1, *(1,) * (at.ndim - 2))
    # Positions stay within the range of integers.
    at = np.clip(np.where(np.isnan(at), -2, at), -2, np.reshape(extents, along) + 1)
    base = np.floor(at)
    fraction = at - base
    result = np.zeros((*channels.shape[:2], *at.shape[2:]), channels.dtype)
    for corner in product((0, 1), repeat=len(extents)):
        position = base.astype(np.int64) + np.reshape(corner, along)
        inside = ((position >= 0) & (position < np.reshape(extents, along))).all(axis=1)
        weight = np.where(np.reshape(corner, along) == 1, fraction, 1 - fraction).prod(axis=1)
        position = np.clip(position, 0, np.reshape(extents, along) - 1)
        for part, pixels in enumerate(channels):
            selected = pixels[(slice(None), *position[part])]
            result[part] += np.where(inside[part], selected, 0) * weight[part]
    return result


class MaxRoiPool(OpRun):  # type: ignore[misc]
    """The maximum of each bin of each region; corners are rounded to pixels, empty bins are 0."""

    def _run(
        self, x: Array, regions: Array, pooled_shape: Any = None, spatial_scale: float | None = None
    ) -> tuple[Array]:
        bins = np.array(pooled_shape)
        extents = np.array(x.shape[2:])
        clean = np.where(np.isnan(regions), 0, regions)
        images = np.clip(clean[:, 0], 0, len(x) - 1).astype(np.int64)
        scaled = clean[:, 1:] * (spatial_scale or 1.0)
        pixels = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
        corners = np.clip(pixels, -(2**30), 2**30).astype(np.int64)
        first, last = corners[:, 1::-1], corners[:, :1:-1]
        # In float32, as in runtimes.
        size = np.maximum(last - first + 1, 1).astype(np.float32) / bins.astype(np.float32)
        y = np.zeros((len(regions), x.shape[1], *bins), x.dtype)
        for number, image in enumerate(images):
            for place in np.ndindex(*bins):
                low, high = (np.array(place, np.float32) + np.float32(step) for step in (0, 1))
                begin = np.floor(low * size[number]).astype(np.int64) + first[number]
                end = np.ceil(high * size[number]).astype(np.int64) + first[number]
                (top, left), (bottom, right) = (np.clip(c, 0, extents) for c in (begin, end))
                if bottom > top and right > left:
                    seen = x[image, :, top:bottom, left:right]
                    y[(number, slice(None), *place)] = seen.max(axis=(1, 2))
        return (y,)
