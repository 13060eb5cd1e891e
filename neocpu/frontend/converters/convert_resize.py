"""Resize; Upsample becomes Resize when the opset is raised.

Forms that TVM's kernel computes exactly become ``relax.image.resize2d``. Every form is a weighted
sum of a few elements along one axis at a time, and the others become that sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_integer import is_integer
from neocpu.frontend.converters.node import Converters, Node, const, dtype_of, scalar

ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
LOST = 1e-3
"""The most by which rounding errors move a sum below an integer.

No inexact sum of quotients by a power of two is so close to an integer.
"""

_NATIVE_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True, slots=True)
class _Axis:
    """The resizing of one axis to ``output`` elements, with ``scale`` of them per input element."""

    axis: int
    extent: int
    output: int
    scale: float
    roi: tuple[float, float]

    @property
    def exact(self) -> bool:
        """Whether the scale is the ratio of the sizes, as TVM takes it."""
        return math.isclose(self.scale * self.extent, self.output, rel_tol=1e-6)


@dataclass(frozen=True, slots=True)
class _Taps:
    """Output i is ``offset[i]`` plus the sum over t of ``weights[i, t] * data[indices[i, t]]``."""

    indices: np.ndarray
    weights: np.ndarray
    offset: np.ndarray


def _resize(node: Node) -> relax.Expr:
    mode = node.string("mode", "nearest")
    coordinates = node.string("coordinate_transformation_mode", "half_pixel")
    cropped = coordinates == "tf_crop_and_resize"
    plans = [
        plan for plan in _plan(node) if plan.output != plan.extent or plan.scale != 1 or cropped
    ]
    taps = [_nearest_taps(node, plan) if mode == "nearest" else None for plan in plans]
    data = node.data
    if mode != "nearest" and is_integer(data):
        return _resize_integers(node, data, plans, mode)
    if len(node.shape()) == 4 and plans and all(plan.axis >= 2 for plan in plans):
        if mode == "nearest" and all(
            tap is not None and _is_plain_nearest(plan, tap)
            for plan, tap in zip(plans, taps, strict=True)
        ):
            return _native(node, plans, "nearest_neighbor", "asymmetric")
        if mode != "nearest" and _is_native(node, plans, coordinates):
            # They differ for one output element only, a case that _is_native rejects.
            same = "half_pixel" if coordinates == "pytorch_half_pixel" else coordinates
            return _native(node, plans, mode, same)
    for plan, tap in zip(plans, taps, strict=True):
        data = _weighted_sum(node, data, plan, tap or _interpolation_taps(node, plan, mode))
    return data


def _resize_integers(node: Node, data: relax.Expr, plans: Sequence[_Axis], mode: str) -> relax.Expr:
    """Interpolate in floating point, and convert to integers as ONNX Runtime does.

    It rounds towards zero at the end; with antialiasing it rounds to nearest after each axis, last
    axis first. Rounding errors of floating point are corrected before.
    """
    dtype = dtype_of(data)
    info = np.iinfo(dtype)
    wide = "float64"  # float32 could round differently just below an integer
    rounds = node.flag("antialias")
    # The largest integer of 64 bits is no float64; this is the next smaller one.
    high = float(min(info.max, 2**63 - 1024 if info.min else 2**64 - 2048))

    def to_integers(values: relax.Expr) -> relax.Expr:
        beyond = scalar(0.5 + LOST if rounds else LOST, values)
        away = relax.op.multiply(node.op.sign(values), beyond)
        values = relax.op.add(values, node.emit(away))
        clipped = node.op.clip(node.emit(values), float(info.min), high)
        return node.op.astype(clipped, dtype)

    data = node.op.astype(data, wide)
    for number, plan in enumerate(reversed(plans)):
        if rounds and number:
            data = node.op.astype(to_integers(data), wide)
        data = _weighted_sum(node, data, plan, _interpolation_taps(node, plan, mode))
    return to_integers(data)


def _plan(node: Node) -> list[_Axis]:
    shape = node.shape()
    axes = [axis % len(shape) for axis in node.ints("axes", range(len(shape)))]
    extents = [shape[axis] for axis in axes]
    roi, sizes = node.constant(1), node.constant(3)
    if sizes is not None and sizes.size:
        outputs = [int(size) for size in sizes]
        factors = [output / extent for output, extent in zip(outputs, extents, strict=True)]
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            outputs = [math.floor(extent * factor + 0.5) for extent in extents]
    else:
        scales = node.required(2)
        factors = [float(scale) for scale in scales]
        # In single precision as in ONNX Runtime: 0.7 of 70 pixels are 49 and not 48.
        outputs = [int(np.float32(e) * np.float32(f)) for e, f in zip(extents, scales, strict=True)]
    count = len(axes)
    region = [0.0] * count + [1.0] * count if roi is None or not roi.size else roi.tolist()
    return [
        _Axis(axes[i], extents[i], outputs[i], factors[i], (region[i], region[count + i]))
        for i in range(count)
    ]


def _is_plain_nearest(plan: _Axis, taps: _Taps) -> bool:
    """Return whether the elements are those of TVM's asymmetric, floored nearest neighbour."""
    plain = np.arange(plan.output) * plan.extent // plan.output
    return bool((taps.indices[:, 0] == plain).all()) and not taps.offset.any()


def _is_native(node: Node, plans: Sequence[_Axis], coordinates: str) -> bool:
    if coordinates not in _NATIVE_COORDINATES or node.attrs.get("exclude_outside", 0):
        return False
    shrinks = any(plan.scale < 1 for plan in plans)
    if node.attrs.get("antialias", 0) and shrinks:
        return False
    if not all(plan.exact for plan in plans):
        return False
    # The distance of corners is divided by the number of outputs minus 1.
    return coordinates == "asymmetric" or 1 not in _image(node, plans)


def _image(node: Node, plans: Sequence[_Axis]) -> list[int]:
    size = list(node.shape()[2:])
    for plan in plans:
        size[plan.axis - 2] = plan.output
    return size


def _native(node: Node, plans: Sequence[_Axis], method: str, coordinates: str) -> relax.Expr:
    return relax.op.image.resize2d(
        node.data,
        size=relax.ShapeExpr(_image(node, plans)),
        layout="NCHW",
        method=method,
        coordinate_transformation_mode=coordinates,
        rounding_method="floor" if method == "nearest_neighbor" else "",
        cubic_alpha=node.number("cubic_coeff_a", -0.75),
    )


def _coordinates(node: Node, plan: _Axis) -> np.ndarray:
    """Return the input coordinate of every output element, (output,)."""
    # In single precision as in ONNX Runtime, because ties decide nearest neighbours.
    x = np.arange(plan.output, dtype=np.float32)
    mode = node.string("coordinate_transformation_mode", "half_pixel")
    last, span = plan.extent - 1, max(plan.output - 1, 1)
    if mode == "asymmetric":
        return x / plan.scale
    if mode == "align_corners":
        return x * last / span
    if mode == "tf_crop_and_resize":
        start, end = plan.roi
        if plan.output == 1:
            return x + 0.5 * (start + end) * last
        return start * last + x * (end - start) * last / span
    half = (x + 0.5) / plan.scale - 0.5
    if mode == "pytorch_half_pixel":
        return half if plan.output > 1 else x
    if mode == "half_pixel_symmetric":
        adjustment = plan.output / (plan.scale * plan.extent)
        return half + plan.extent / 2 * (1 - adjustment)
    if mode == "tf_half_pixel_for_nn":
        return half + 0.5
    assert mode == "half_pixel", mode
    return half


def _nearest_taps(node: Node, plan: _Axis) -> _Taps:
    x = _coordinates(node, plan)
    rounded = ROUNDING[node.string("nearest_mode", "round_prefer_floor")](x)
    indices = np.clip(rounded, 0, plan.extent - 1).astype(np.int64)[:, None]
    return _extrapolated(node, plan, x, indices, np.ones(indices.shape))


def _interpolation_taps(node: Node, plan: _Axis, mode: str) -> _Taps:
    x = _coordinates(node, plan)
    # Antialiasing stretches the kernel over the inputs that one output covers.
    shrink = min(plan.scale, 1.0) if node.attrs.get("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    taps = np.arange(first, 2 - first)[None, :] if shrink < 1 else np.arange(1 - reach, reach + 1)
    positions = np.floor(x)[:, None] + taps
    distance = np.abs(positions - x[:, None]) * shrink
    if mode == "linear":
        weights = np.clip(1 - distance, 0, None)
    else:
        weights = _cubic_kernel(distance, node.number("cubic_coeff_a", -0.75))
    if node.attrs.get("exclude_outside", 0):
        weights = weights * ((positions >= 0) & (positions < plan.extent))
    weights = weights / weights.sum(axis=1, keepdims=True)
    indices = np.clip(positions, 0, plan.extent - 1).astype(np.int64)
    return _extrapolated(node, plan, x, indices, weights)


def _cubic_kernel(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _extrapolated(
    node: Node, plan: _Axis, x: np.ndarray, indices: np.ndarray, weights: np.ndarray
) -> _Taps:
    cropped = node.string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    outside = ((x < 0) | (x > plan.extent - 1)) & cropped
    weights = np.where(outside[:, None], 0.0, weights)
    value = node.number("extrapolation_value", 0.0)
    return _Taps(indices, weights, np.where(outside, value, 0.0))


def _weighted_sum(node: Node, data: relax.Expr, plan: _Axis, taps: _Taps) -> relax.Expr:
    """Emit the taps along one axis as takes, products and sums, which fuse into one loop."""
    trailing = [1] * (len(node.shape()) - plan.axis - 1)
    dtype = dtype_of(data)

    def column(values: np.ndarray) -> relax.Expr:
        return const(values.reshape(-1, *trailing).astype(dtype))

    total = None
    for tap in range(taps.indices.shape[1]):
        weights = taps.weights[:, tap]
        if not weights.any():
            continue
        term = relax.op.take(data, const(taps.indices[:, tap]), plan.axis, "clip")
        if (weights != 1).any():
            term = relax.op.multiply(node.emit(term), column(weights))
        term = node.emit(term)
        total = term if total is None else node.op.add(total, term)
    if total is None:
        total = node.op.multiply(data, column(np.zeros(1)))
    if taps.offset.any():
        total = node.op.add(total, column(taps.offset))
    return total


CONVERTERS: Converters = {"Resize": _resize}
