"""Widen 16-bit floats to float32, and refuse models that compute in narrower numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.checks.tensor_check import all_tensors
from neocpu.frontend.onnx_graph.names import fresh_names
from neocpu.frontend.onnx_graph.subgraphs import all_nodes
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.static_shapes import real_inputs

_HALVES: Final = (TensorProto.FLOAT16, TensorProto.BFLOAT16)

_TYPE_ATTRIBUTES: Final = frozenset(
    "dtype output_datatype output_dtype precision softmax_precision stash_type to".split()
)
"""Attributes whose integer is an element type."""

_NARROW: Final = {
    kind: name.lower()
    for name, kind in TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
}
"""The names for messages of types that modules do not support."""


def widen_halves(model: onnx.ModelProto) -> None:
    """Make a checked model compute in float32 instead of float16 or bfloat16, in place.

    Its inputs and outputs keep their types: inputs are converted first, and outputs last. Nothing
    in between is rounded to 16 bits, neither by an operator nor by a Cast.
    """
    graph = model.graph
    given = {value.name for value in real_inputs(graph)}
    read = [value for value in real_inputs(graph) if _is_half(value)]
    made = [value for value in graph.output if _is_half(value) and value.name not in given]
    for tensor in all_tensors(model):
        if tensor.data_type in _HALVES:
            wide = array_of(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    values = [*graph.value_info, *(each for each in graph.input if each.name not in given)]
    for nodes in (graph.node, *(function.node for function in model.functions)):
        for node in all_nodes(nodes):
            values += _widen_attributes(node)
    for value in values:
        if _is_half(value):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    _convert_boundary(graph, read, made)


def refuse_number_formats(graph: onnx.GraphProto) -> None:
    """Raise an `UnsupportedError` if a weight has integers below 8 bits, or floats of 8 or less."""
    for tensor in graph.initializer:
        if tensor.data_type in _NARROW:
            raise UnsupportedError(
                f"this model computes with {_NARROW[tensor.data_type]} numbers (first tensor "
                f"'{tensor.name}'); neocpu computes in float32: export it in float32"
            )


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in _HALVES


def _convert_boundary(
    graph: onnx.GraphProto,
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
) -> None:
    """Insert a Cast after each of these inputs, and before each of these outputs."""
    names = fresh_names(graph)
    new: dict[str, str] = {}
    first, last = [], []
    for value in inputs:
        new[value.name] = names.fresh(f"{value.name}_float32")
        first.append(_cast(value.name, new[value.name], TensorProto.FLOAT))
    for value in outputs:
        new[value.name] = names.fresh(f"{value.name}_float32")
        kind = value.type.tensor_type.elem_type
        last.append(_cast(new[value.name], value.name, kind))
    for node in all_nodes(graph.node) if new else ():
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
    for named in (*graph.initializer, *graph.value_info):
        named.name = new.get(named.name, named.name)
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)


def _cast(source: str, result: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [result], name=f"{result}_cast", to=kind)


def _widen_attributes(node: onnx.NodeProto) -> list[onnx.ValueInfoProto]:
    """Widen the types that a node names; return the values that its inner graphs declare."""
    declared: list[onnx.ValueInfoProto] = []
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:
            attribute.i = TensorProto.FLOAT
        for inner in (attribute.g, *attribute.graphs):
            declared += [*inner.input, *inner.value_info, *inner.output]
    return declared
