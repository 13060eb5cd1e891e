"""The model that a reduction starts from: inputs are static, weights its own or random ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.frontend import models
from neocpu.frontend.checks.conflicts import refuse_dynamic_inputs
from neocpu.frontend.onnx_graph.subgraphs import graphs_of, model_nodes
from neocpu.frontend.shapes.input_shapes import Given, InputShapes
from neocpu.frontend.shapes.static_shapes import fix_values, freeze_shapes
from neocpu.frontend.source import read_model


def static_model(
    model: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Given],
    *,
    weights: bool = True,
) -> onnx.ModelProto:
    """Read a model or build a network, with static inputs; random weights unless ``weights``."""
    given = InputShapes.parse(shapes)
    builtin = isinstance(model, str) and models.is_name(model)
    found = models.build(str(model)) if builtin else read_model(model)
    fix_values(found.graph, given.values)
    freeze_shapes(found.graph, given)
    refuse_dynamic_inputs(found, given)
    lift_constants(found)
    if not weights:
        randomise_weights(found)
    return found


Array: TypeAlias = np.ndarray[Any, Any]

FEW: Final = 16
"""Number of elements up to which a tensor is kept, because it may be a parameter of an operator."""

_WHOLE: Final = ("int2", "int4", "int8", "uint2", "uint4", "uint8")
"""Integer types of weights; wider ones are for indices, shapes and offsets of sums."""


def randomise_weights(model: onnx.ModelProto, seed: int = 0) -> None:
    """Replace weights by random ones of the same shapes, in initializers and attributes, in place.

    Floats are from a normal distribution with the old values' mean and deviation, integers of up to
    8 bits even; all within the old range, so that variances stay positive. Tensors of few elements
    and wider integers stay, as they may be parameters of operators.
    """
    rng = np.random.default_rng(seed)
    for tensor in _tensors(model):
        array = numpy_helper.to_array(tensor)
        if array.size > FEW and (drawn := _drawn(array, rng)) is not None:
            tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    for node in model_nodes(model):
        for attribute in node.attribute:
            if len(attribute.floats) > FEW:
                numbers = np.array(attribute.floats, np.float32)
                attribute.floats[:] = np.asarray(_drawn(numbers, rng)).tolist()


def lift_constants(model: onnx.ModelProto) -> None:
    """Turn nodes that are constant tensors into initializers, in place."""
    for graph in _graphs(model.graph):
        kept = []
        for node in graph.node:
            values = [a.t for a in node.attribute if a.name == "value"]
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and values:
                tensor = graph.initializer.add()
                tensor.CopyFrom(values[0])
                tensor.name = node.output[0]
            else:
                kept.append(node)
        if len(kept) < len(graph.node):
            copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
            del graph.node[:]
            graph.node.extend(copies)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in _graphs(model.graph):
        yield from graph.initializer
    for node in model_nodes(model):
        for attribute in node.attribute:
            if attribute.ref_attr_name:  # a parameter of a function, without a value
                continue
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for inner in graphs_of(node):
            yield from _graphs(inner)
    yield graph


def _drawn(array: Array, rng: np.random.Generator) -> Array | None:
    if array.dtype.name in _WHOLE:
        known = array.astype(np.int64)
        whole = rng.integers(known.min(), known.max(), array.shape, endpoint=True)
        return np.asarray(whole.astype(array.dtype))
    if not array.dtype.name.startswith(("float", "bfloat")):
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    mean, deviation = (finite.mean(), finite.std()) if finite.size else (0.0, 1.0)
    drawn: Array = np.asarray(rng.normal(mean, deviation, array.shape))
    if finite.size:
        drawn = np.asarray(np.clip(drawn, finite.min(), finite.max()))
    return np.asarray(drawn.astype(array.dtype))
