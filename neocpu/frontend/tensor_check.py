"""Refuse tensors whose data are not what their shape and type need.

onnx's checker counts no bytes, and whoever reads such a tensor later fails in a way of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import uses_external_data

from neocpu.schedules.errors import ModelError

_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)


def refuse_malformed_tensors(model: onnx.ModelProto, where: str) -> None:
    """Check every weight and every tensor in an attribute.

    Raises
    ------
    ModelError
        Naming the first that is malformed.
    """
    for tensor in _tensors(model.graph):
        problem = _problem(tensor)
        if problem:
            raise ModelError(f"{where} is not a valid ONNX model: tensor '{tensor.name}' {problem}")


def is_element_type(number: int) -> bool:
    """Return whether ``number`` stands for an element type that onnx knows."""
    return number != TensorProto.UNDEFINED and number in TensorProto.DataType.values()


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _problem(tensor: onnx.TensorProto) -> str:
    """Return what is wrong with a tensor, empty if nothing is."""
    if not is_element_type(tensor.data_type):
        return f"has the unknown element type {tensor.data_type}"
    if min(tensor.dims, default=0) < 0:
        return f"has the shape {list(tensor.dims)}"
    if uses_external_data(tensor):
        return ""
    elements = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        needed = _bytes(tensor.data_type, elements)
        if len(tensor.raw_data) != needed:
            return f"holds {len(tensor.raw_data)} bytes, its shape and type need {needed}"
        return ""
    held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    needed = _stored(tensor.data_type, elements)
    return "" if held == needed else f"holds {held} numbers, its shape and type need {needed}"


def _bits(data_type: int) -> int:
    """Return how many bits an element takes where several share a byte, else 0."""
    name = TensorProto.DataType.Name(data_type)
    return 4 if name in ("INT4", "UINT4", "FLOAT4E2M1") else 2 if name in ("INT2", "UINT2") else 0


def _bytes(data_type: int, elements: int) -> int:
    bits = _bits(data_type) or 8 * helper.tensor_dtype_to_np_dtype(data_type).itemsize
    return -(-elements * bits // 8)


def _stored(data_type: int, elements: int) -> int:
    """Return how many numbers a tensor's own field holds."""
    if data_type in _COMPLEX:
        return 2 * elements
    return -(-elements * _bits(data_type) // 8) if _bits(data_type) else elements
