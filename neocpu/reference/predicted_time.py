"""How long the reference takes for a model, before it is run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np
import onnx

from neocpu.frontend.extents import known_shapes
from neocpu.frontend.weightless_model import strip_weights
from neocpu.reference.fast_operators import Window, convolve

_ELEMENT_SECONDS: Final = 1e-8
"""Of an operator that computes each element by itself."""

_FEW: Final = 10**9
"""Products that take no time worth measuring the machine for."""


def predicted_seconds(model: onnx.ModelProto, images: int = 1) -> float:
    """Return about how long the reference takes in float64; in float32 it takes half of it.

    What no shape is known of does not count.

    Parameters
    ----------
    images : int
        How many times the model is run.
    """
    light = strip_weights(model)
    try:
        graph = onnx.shape_inference.infer_shapes(light.model).graph
    except Exception:  # C++ has exceptions of its own
        return 0.0
    shapes = known_shapes(graph)
    products = sum(_products(node, shapes) for node in graph.node)
    elements = sum(math.prod(shapes.get(o, (0,))) for node in graph.node for o in node.output)
    if products < _FEW:
        return 0.0
    return images * (products * _product_seconds() + elements * _ELEMENT_SECONDS)


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return how many products a node adds up."""
    if len(node.input) < 2 or not node.output:
        return 0
    first, second, result = (
        shapes.get(name) for name in (node.input[0], node.input[1], node.output[0])
    )
    if not first or not second or not result:
        return 0
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    if node.op_type in ("MatMul", "Gemm"):
        return math.prod(first) * math.prod(result) // max(1, math.prod(result[:-1]))
    return 0


@cache
def _product_seconds() -> float:
    """Return what a product takes on this machine, in a convolution of middling size."""
    channels, extent = 64, 56
    data = np.ones((channels, extent + 2, extent + 2))
    weights = np.ones((channels, channels, 3, 3))
    window = Window(data.shape[1:], weights.shape[2:], {})
    result = np.empty((channels, *window.out))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        convolve(data, weights, 1, window, result)
        seconds.append(time.perf_counter() - start)
    return float(min(seconds) / (result.size * weights[0].size))
