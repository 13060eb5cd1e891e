"""The predicted time of the reference for a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx

from neocpu.frontend.onnx_graph.onnx_tools import infer_shapes
from neocpu.frontend.shapes.extents import known_shapes

SECONDS: Final = 1.8e-10
"""Seconds of a multiply-add in float64 (on two threads of a Zen 5)."""


def predicted_seconds(
    model: onnx.ModelProto,
    images: int = 1,
    known: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> float:
    """Return about how long the reference takes in float64; in float32 it takes half as long.

    Only the products of convolutions and matrix products of known shapes are counted: those that
    shape inference finds, and the ``known`` ones. The model is run ``images`` times.
    """
    try:
        graph = infer_shapes(model).graph
    except Exception:  # C++ has exceptions of its own
        return 0.0
    shapes = {**known, **known_shapes(graph)}
    return images * SECONDS * sum(_products(node, shapes) for node in graph.node)


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of products that a node sums."""
    if node.op_type not in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
        return 0
    first, second, result = (shapes.get(n) for n in (*node.input[:2], node.output[0]))
    if not first or not second or not result:
        return 0
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    return math.prod(first) * math.prod(result) // max(1, math.prod(result[:-1]))
