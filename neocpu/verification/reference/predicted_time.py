"""The predicted time of the reference for a model."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from neocpu.frontend.numpy_operators.fast_operators import Window, convolve
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.onnx_tools import infer_shapes
from neocpu.frontend.onnx_graph.subgraphs import graphs_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.extents import known_shapes

_ELEMENT_SECONDS: Final = 6e-9
"""Seconds for each element of an elementwise operator."""

_VIEWS: Final = frozenset(
    "Constant Expand Flatten Identity Reshape Slice Split Squeeze Transpose Unsqueeze".split()
)
"""Operators that numpy computes without making elements."""

_FEW: Final = 10**9
"""Number of products below which the speed of the machine need not be measured."""

_NODE_SECONDS: Final = 2.5e-5
"""Least seconds of a node in the body of a loop."""


def predicted_seconds(
    model: onnx.ModelProto,
    images: int = 1,
    known: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> float:
    """Return the approximate seconds of the reference in float64; float32 takes half as long.

    Tensors of unknown shape do not count. A loop whose end data decide counts as one iteration.

    Parameters
    ----------
    images : int
        Number of times that the model is run.
    known : mapping of str to tuple of int
        Shapes of tensors that inference may not find.
    """
    try:
        graph = _inferred(model, known)
    except Exception:  # C++ has exceptions of its own
        return 0.0
    shapes = {**known, **known_shapes(graph)}
    products = sum(_products(node, shapes) for node in graph.node)
    made = (node.output for node in graph.node if node.op_type not in _VIEWS)
    elements = sum(math.prod(shapes.get(name, (0,))) for names in made for name in names)
    seconds = _runs(graph, shapes, {}) * _NODE_SECONDS
    if products >= _FEW:
        seconds += products * _product_seconds() + elements * _ELEMENT_SECONDS
    return images * seconds


def _inferred(model: onnx.ModelProto, known: Mapping[str, tuple[int, ...]]) -> onnx.GraphProto:
    """Return the graph with all shapes that inference finds, also by propagating shapes as data."""
    graph = infer_shapes(model).graph
    known = {**known, **known_shapes(graph)}
    if all(name in known for node in graph.node for name in node.output if name):
        return graph
    with suppress(Exception):  # C++ has exceptions of its own
        return infer_shapes(model, data_prop=True).graph
    return graph


def _runs(
    graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]], around: Mapping[str, int]
) -> int:
    """Return the number of runs of all nodes in bodies, by the trip counts that are constants."""
    integers = {**around, **_integers(graph)}
    total = 0
    for node in graph.node:
        for body in graphs_of(node):
            steps = 1
            if node.op_type == "Loop" and _goes_on(body):
                steps = integers.get(node.input[0], 1)
            elif node.op_type == "Scan":
                steps = _extent(node, shapes)
            total += steps * (len(body.node) + _runs(body, {}, integers))
    return total


def _integers(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the values of constants that are a single integer."""
    of_one = {
        name: tensor
        for name, tensor in constant_tensors(graph).items()
        if tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) == 1
    }
    return {name: int(array_of(tensor).item()) for name, tensor in of_one.items()}


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether a Loop always runs to its trip count: its condition does not change."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name not in makers or makers[name].op_type == "Constant"


def _extent(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of iterations of a Scan, by its last input; 1 if that is not known."""
    given = {each.name: each.ints for each in node.attribute}
    axis = [0, *given.get("scan_input_axes", ())][-1]
    shape = shapes.get(node.input[-1], ())
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of products that a node adds up."""
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
    """Return the measured seconds of a product on this machine, in a convolution of medium size."""
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
