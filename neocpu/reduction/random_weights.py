"""A model's weights replaced by random ones, for a model that may not be shown to others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.frontend.subgraphs import graphs_of

Array: TypeAlias = np.ndarray[Any, Any]

FEW: Final = 16
"""Elements of a tensor that is taken to say how an operator works, and stays."""

_WHOLE: Final = ("int8", "uint8")
"""Integers that are weights; wider ones are indices, shapes and sums' offsets."""


def randomise_weights(model: onnx.ModelProto, seed: int = 0) -> None:
    """Replace weights by random ones of the same shapes, in place.

    Floats are drawn around the mean of those that were there, as far from it; where none is
    negative, none will be, for a variance has a root. Bytes are drawn within the range that was
    there. Few elements, and integers of more bits, stay: operators are told by these what to do.
    """
    rng = np.random.default_rng(seed)
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.size > FEW and (drawn := _drawn(array, rng)) is not None:
                tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))


def lift_constants(model: onnx.ModelProto) -> None:
    """Turn nodes that are constant tensors into initializers, in place: they compute nothing."""
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


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for inner in graphs_of(node):
            yield from _graphs(inner)
    yield graph


def _drawn(array: Array, rng: np.random.Generator) -> Array | None:
    if array.dtype.name in _WHOLE:
        low, high = int(array.min()), int(array.max())
        whole: Array = rng.integers(low, high, array.shape, endpoint=True).astype(array.dtype)
        return whole
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    mean, deviation = (finite.mean(), finite.std()) if finite.size else (0.0, 1.0)
    drawn = rng.normal(mean, deviation, array.shape)
    found: Array = np.abs(drawn) if (finite >= 0).all() else np.asarray(drawn)
    return found.astype(array.dtype)
