"""Resize and Upsample in numpy, one axis after the other."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as OnnxResize

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.cubic_kernel import cubic_kernel

_LOST = 1e-3  # the most by which float32 rounding moves a sum below an integer


class Resize(OnnxResize):  # type: ignore[misc]
    """Resize by nearest, linear and cubic interpolation; rare forms by onnx's own loops."""

    def _run(self, x: Array, *inputs: Array | None, **attrs: Any) -> tuple[Array]:
        if self.run_params["opsets"][""] < 11:
            scales = _given(inputs[0])
            assert scales is not None
            return (_resize(x, _extents(x, scales), scales, attrs | _OPSET_10),)
        rare = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize" or attrs.get(
            "keep_aspect_ratio_policy"
        ) not in (None, "stretch")
        roi, scales, sizes = (_given(value) for value in (*inputs, None, None, None)[:3])
        if rare:
            return super()._run(x, roi, scales, sizes, **attrs)  # type: ignore[no-any-return]
        axes = [axis % x.ndim for axis in attrs.get("axes") or range(x.ndim)]
        extents = np.array(x.shape)
        factors = np.ones(x.ndim)
        if sizes is not None:
            extents[axes] = sizes
            factors[axes] = extents[axes] / np.array(x.shape)[axes]
        else:
            factors[axes] = scales
            extents = _extents(x, factors)
        return (_resize(x, extents, factors, attrs),)


#: The behaviour of Resize and Upsample before these attributes: they rounded up when shrinking.
_OPSET_10 = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": None}


class Upsample(OpRun):  # type: ignore[misc]
    """The predecessor of Resize (opsets 7 to 9); its scales were first an attribute."""

    def _run(self, x: Array, scales: npt.ArrayLike, **attrs: Any) -> tuple[Array]:
        factors = np.asarray(scales)
        return (_resize(x, _extents(x, factors), factors, attrs | _OPSET_10),)


def _given(value: Array | None) -> Array | None:
    """Return an optional input; an empty tensor also means that it is left out."""
    return None if value is None or value.size == 0 else value


def _extents(x: Array, scales: Array) -> Array:
    # In float32, as in runtimes: 0.7 of 70 pixels are 49 and not 48.9999992.
    extents: Array = np.array(x.shape, np.float32) * scales.astype(np.float32)
    return np.floor(extents).astype(np.int64)


def _resize(x: Array, extents: Array, scales: Array, attrs: dict[str, Any]) -> Array:
    mode = attrs["mode"]
    mode = "linear" if mode == "bilinear" else mode
    whole = x.dtype.kind in "iu" and mode != "nearest"
    y = x.astype(np.float64) if whole else x
    # The last axis first; with antialiasing, integers are rounded after each axis.
    for axis in reversed(range(x.ndim)):
        extent, scale, size = int(extents[axis]), float(scales[axis]), x.shape[axis]
        if extent == size and scale == 1:
            continue
        at = _coordinates(extent, size, scale, attrs["coordinate_transformation_mode"])
        if mode == "nearest":
            rounding = attrs["nearest_mode"] or ("ceil" if scale < 1 else "floor")
            y = np.take(y, _nearest(at, size, rounding), axis)
            continue
        along = (-1, *(1,) * (x.ndim - 1 - axis))
        taps = _taps(at, size, mode, attrs, min(scale, 1.0) if attrs.get("antialias") else 1.0)
        parts = [np.take(y, place, axis) * weight.reshape(along) for place, weight in taps]
        y = functools.reduce(np.add, parts)
        if whole and attrs.get("antialias"):
            y = _saturated(np.trunc(y + np.copysign(0.5 + _LOST, y)), x.dtype)
    if whole and not attrs.get("antialias"):
        y = _saturated(np.trunc(y + np.copysign(_LOST, y)), x.dtype)
    return np.ascontiguousarray(y.astype(x.dtype, copy=False))


def _saturated(values: Array, dtype: np.dtype[Any]) -> Array:
    info = np.iinfo(dtype)
    # The largest integer of 64 bits is no float64; this is the next smaller one.
    high = float(info.max) if info.bits < 64 else np.nextafter(float(info.max), 0)
    return np.clip(values, float(info.min), high)


def _coordinates(extent: int, size: int, factor: float, mode: str) -> Array:
    """Return input coordinates in float32, as runtimes do: at scale 0.6, position 3 maps to 5."""
    out = np.arange(extent, dtype=np.float32)
    scale = np.float32(factor)
    if mode == "asymmetric":
        return np.asarray(out / scale)
    if mode == "align_corners":
        return out * (size - 1) / (extent - 1) if extent > 1 else np.zeros(extent)
    if mode == "pytorch_half_pixel" and extent == 1:
        return np.zeros(extent)
    half_pixel = (out + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return half_pixel + 0.5
    if mode == "half_pixel_symmetric":
        return half_pixel + size / 2 * (1 - extent / (scale * size))
    return half_pixel


def _nearest(at: Array, size: int, mode: str) -> Array:
    rounded = {
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
    }[mode]()
    return np.clip(rounded, 0, size - 1).astype(np.int64)


def _taps(
    at: Array, size: int, mode: str, attrs: dict[str, Any], shrink: float
) -> list[tuple[Array, Array]]:
    """Return positions and weights of neighbours; a ``shrink`` below 1, to antialias, adds some."""
    base = np.floor(at)
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    shifts = range(first, 2 - first)
    distances = [np.abs(base + shift - at) * shrink for shift in shifts]
    if mode == "linear":
        weights = [np.maximum(1 - distance, 0) for distance in distances]
    else:
        a = attrs.get("cubic_coeff_a", -0.75)
        weights = [cubic_kernel(distance, a) for distance in distances]
    places = [base.astype(np.int64) + shift for shift in shifts]
    if shrink < 1:
        total = sum(weights)
        weights = [weight / total for weight in weights]
    if attrs.get("exclude_outside"):
        outside = [(place < 0) | (place >= size) for place in places]
        weights = [np.where(out, 0, one) for out, one in zip(outside, weights, strict=True)]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    inside = [np.clip(place, 0, size - 1) for place in places]
    return list(zip(inside, (weight.astype(np.float64) for weight in weights), strict=True))
