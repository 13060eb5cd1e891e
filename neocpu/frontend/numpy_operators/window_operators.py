"""Further operators on windows in numpy, without Python loops over pixels.

onnx's evaluator runs Col2Im and DeformConv in loops per pixel, and has no MaxRoiPool.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.fast_operators import Window


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
    """Convolution of interpolated pixels at offsets; there are zeros around the image.

    A NaN position reads zero.
    """

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
