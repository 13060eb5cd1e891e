"""Resize and Upsample.

The forms exporters write become ``relax.image.resize2d``. Every other one is, like those, linear in
the data along one axis at a time, and becomes a product with a constant matrix per axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from neocpu.frontend.node import Node, dtype_of

_NEAREST_ROUNDING = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
# The forms of which TVM's kernel agrees with ONNX to rounding, given exact integer sizes.
_NATIVE = {
    ("nearest", "asymmetric", "floor"),
    ("linear", "half_pixel", None),
    ("linear", "align_corners", None),
    ("linear", "asymmetric", None),
}


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    axis: int
    extent: int
    output: int
    scale: float
    roi: tuple[float, float]


def resize(node: Node) -> relax.Expr:
    """Resize with every mode of opset 18 and newer."""
    mode = node.string("mode", "nearest")
    coordinates = node.string("coordinate_transformation_mode", "half_pixel")
    rounding = node.string("nearest_mode", "round_prefer_floor") if mode == "nearest" else None
    plans = [plan for plan in _plan_axes(node) if plan.output != plan.extent or plan.scale != 1]
    data = node.inputs[0]
    if coordinates == "tf_crop_and_resize":
        plans = _plan_axes(node)
    if not plans:
        return data
    antialias = int(node.attrs.get("antialias", 0))
    if (mode, coordinates, rounding) in _NATIVE and not antialias and _spatial_2d(node, plans):
        return _native(node, plans, mode, coordinates, rounding)
    for plan in plans:
        matrix = _matrix(node, plan, mode, coordinates, rounding)
        data = _apply(node, data, matrix, plan.axis)
    return data


def _plan_axes(node: Node) -> list[_Axis]:
    shape, rank = node.shape(), len(node.shape())
    axes = [axis % rank for axis in node.ints("axes", range(rank))]
    roi, scales, sizes = node.constant(1), node.constant(2), node.constant(3)
    if sizes is not None and sizes.size:
        outputs = [int(size) for size in sizes]
        outputs = _keep_aspect(node, [shape[axis] for axis in axes], outputs)
        factors = [output / shape[axis] for output, axis in zip(outputs, axes, strict=True)]
        if node.string("keep_aspect_ratio_policy", "stretch") != "stretch":
            factors = [_aspect_scale(node, [shape[a] for a in axes], [int(s) for s in sizes])] * len(
                axes
            )
    else:
        assert scales is not None
        factors = [float(scale) for scale in scales]
        outputs = [math.floor(shape[a] * f) for a, f in zip(axes, factors, strict=True)]
    region = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else roi.tolist()
    return [
        _Axis(a, shape[a], outputs[i], factors[i], (region[i], region[len(axes) + i]))
        for i, a in enumerate(axes)
    ]
