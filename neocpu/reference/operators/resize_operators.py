"""Resize and Upsample in numpy, one axis after the other."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as OnnxResize

Array: TypeAlias = npt.NDArray[Any]


class Resize(OnnxResize):  # type: ignore[misc]
    """Resize by nearest, linear and cubic interpolation; onnx's own loops for the rare rest."""

    def _run(self, x: Array, *inputs: Array | None, **attrs: Any) -> tuple[Array]:
        if self.run_params["opsets"][""] < 11:
            scales = _given(inputs[0])
            assert scales is not None
            return (_resize(x, _extents(x, scales), scales, attrs | _OPSET_10),)
        rare = (
            # Nearest pixels are what they are, with antialiasing too; onnx's loops refuse that.
            (attrs.get("antialias") and attrs.get("mode", "nearest") != "nearest")
            or attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
            or attrs.get("keep_aspect_ratio_policy") not in (None, "stretch")
        )
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


#: What Resize and Upsample did before the attributes existed: they rounded up where they shrank.
_OPSET_10 = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": None}


class Upsample(OpRun):  # type: ignore[misc]
    """The predecessor of Resize (opsets 7 to 9), its scales first an attribute, then an input."""

    def _run(self, x: Array, scales: npt.ArrayLike, **attrs: Any) -> tuple[Array]:
        factors = np.asarray(scales)
        return (_resize(x, _extents(x, factors), factors, attrs | _OPSET_10),)


def _given(value: Array | None) -> Array | None:
    """An optional input that is left out may also be an empty tensor."""
    return None if value is None or value.size == 0 else value


def _extents(x: Array, scales: Array) -> Array:
    # In float32, as runtimes compute it: of 70 pixels, 0.7 are 49 and not 48.9999992.
    extents: Array = np.array(x.shape, np.float32) * scales.astype(np.float32)
    return np.floor(extents).astype(np.int64)


def _resize(x: Array, extents: Array, scales: Array, attrs: dict[str, Any]) -> Array:
    mode = attrs["mode"]
    mode = "linear" if mode == "bilinear" else mode
    y = x
    for axis, (extent, scale) in enumerate(zip(extents.tolist(), scales.tolist(), strict=True)):
        size = x.shape[axis]
        if extent == size and scale == 1:
            continue
        at = _coordinates(extent, size, scale, attrs["coordinate_transformation_mode"])
        if mode == "nearest":
            rounding = attrs["nearest_mode"] or ("ceil" if scale < 1 else "floor")
            y = np.take(y, _nearest(at, size, rounding), axis)
        else:
            along = (-1, *(1,) * (x.ndim - 1 - axis))
            taps = _taps(at, size, mode, attrs)
            parts = [np.take(y, place, axis) * weight.reshape(along) for place, weight in taps]
            y = functools.reduce(np.add, parts)
    return np.ascontiguousarray(y.astype(x.dtype, copy=False))


def _coordinates(extent: int, size: int, factor: float, mode: str) -> Array:
    """Return, for each output position, its coordinate in the input.

    In float32, as runtimes compute it: with a scale of 0.6, position 3 maps to 5, not to 4.9999998.
    """
    out = np.arange(extent, dtype=np.float32)
    scale = np.float32(factor)
    if mode == "asymmetric":
        return np.asarray(out / scale)
    if mode == "align_corners":
        return out * (size - 1) / (extent - 1) if extent > 1 else np.zeros(extent)
    if mode == "pytorch_half_pixel" and extent == 1:
        return np.zeros(extent)
    half_pixel = (out + 0.5) / scale - 0.5
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


def _taps(at: Array, size: int, mode: str, attrs: dict[str, Any]) -> list[tuple[Array, Array]]:
    """Return the neighbours of each output position: where they are, and what they weigh."""
    base = np.floor(at)
    fraction = at - base
    if mode == "linear":
        first, weights = 0, [1 - fraction, fraction]
    else:
        first, weights = -1, _cubic(fraction, attrs.get("cubic_coeff_a", -0.75))
    places = [base.astype(np.int64) + offset for offset in range(first, first + len(weights))]
    if attrs.get("exclude_outside"):
        outside = [(place < 0) | (place >= size) for place in places]
        weights = [np.where(out, 0, one) for out, one in zip(outside, weights, strict=True)]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    inside = [np.clip(place, 0, size - 1) for place in places]
    return list(zip(inside, (weight.astype(np.float64) for weight in weights), strict=True))


def _cubic(t: Array, a: float) -> list[Array]:
    """Return the weights of the four neighbours for a fraction ``t`` (Keys' cubic convolution)."""

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
