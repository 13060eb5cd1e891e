"""Float32 models as converters to 16 bits write them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DTYPES: dict[int, Any] = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def halved(model: onnx.ModelProto, kind: int, *, keep_io: bool = False) -> onnx.ModelProto:
    """Return a model whose float32 tensors become 16 bits wide.

    Parameters
    ----------
    kind : int
        ``TensorProto.FLOAT16`` or ``BFLOAT16``.
    keep_io : bool
        Whether inputs and outputs stay float32, with a Cast beside each.
    """
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    del graph.value_info[:]
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            rounded = numpy_helper.to_array(tensor).astype(DTYPES[kind])
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    weights = {tensor.name for tensor in graph.initializer}
    first, last = [], []
    for value in (*graph.input, *graph.output):
        if value.name not in weights and not keep_io:
            value.type.tensor_type.elem_type = kind
    if keep_io:
        for value in graph.input:
            _rename(graph, value.name, f"{value.name}_half")
            first.append(helper.make_node("Cast", [value.name], [f"{value.name}_half"], to=kind))
        for value in graph.output:
            _rename(graph, value.name, f"{value.name}_half")
            last.append(helper.make_node("Cast", [f"{value.name}_half"], [value.name], to=1))
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    return half


def rounded_weights(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Return a float32 model with weights that are rounded to 16 bits."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(DTYPES[kind]).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return wide


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
