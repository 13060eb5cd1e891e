"""Refuse tensors whose data do not match their shape and type, and texts that are not UTF-8.

onnx's checker counts no bytes, and protobuf returns texts that are not UTF-8 as bytes: later
readers fail with unclear errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper
from onnx.external_data_helper import uses_external_data

from neocpu.foundation.errors import ModelError
from neocpu.foundation.plain_text import shortened
from neocpu.frontend.onnx_graph.weightless_model import PACKED, tensor_bytes

_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)


def refuse_malformed_tensors(model: onnx.ModelProto, where: str) -> None:
    """Raise a `ModelError` for the first malformed tensor, a weight or in an attribute."""
    for tensor in all_tensors(model):
        problem = tensor_problem(tensor)
        if problem:
            raise ModelError(f"{where} is not a valid ONNX model: tensor '{tensor.name}' {problem}")


def is_element_type(number: int) -> bool:
    """Return whether ``number`` is the code of an element type that onnx knows."""
    return number != TensorProto.UNDEFINED and number in TensorProto.DataType.values()


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every weight and every tensor in an attribute, also in functions."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            for sparse in attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)
            for inner in (attribute.g, *attribute.graphs):
                yield from _of_graph(inner)


def declared_problem(tensor: onnx.TensorProto) -> str:
    """Return what is wrong with a tensor's declaration, or ""."""
    if not is_element_type(tensor.data_type):
        return f"has the unknown element type {tensor.data_type}"
    if min(tensor.dims, default=0) < 0:
        return f"has the shape {list(tensor.dims)}"
    if tensor.HasField("segment"):
        return "is one segment of a larger tensor, which nothing reads; save it as a whole"
    raw = uses_external_data(tensor) or tensor.HasField("raw_data")
    if raw and tensor.data_type == TensorProto.STRING:
        return "holds strings as raw bytes, which ONNX does not allow"
    return ""


def tensor_problem(tensor: onnx.TensorProto) -> str:
    """Return what is wrong with a tensor, or ""."""
    if (problem := declared_problem(tensor)) or uses_external_data(tensor):
        return problem
    elements = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        needed = tensor_bytes(tensor)
        if len(tensor.raw_data) != needed:
            return f"holds {len(tensor.raw_data)} bytes, its shape and type need {needed}"
        return ""
    stored = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    needed = 2 * elements if tensor.data_type in _COMPLEX else elements
    if tensor.data_type in PACKED:
        needed = -(-elements * PACKED[tensor.data_type] // 8)
    return "" if stored == needed else f"holds {stored} numbers, its shape and type need {needed}"


_SHOWN = 60  # bytes of such a text that a message quotes


def refuse_broken_texts(model: onnx.ModelProto, where: str) -> None:
    """Raise a `ModelError` if a text of a model, or of its inner graphs, is not UTF-8."""
    waiting: list[Message] = [model]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting.extend([value] if isinstance(value, Message) else value)
            elif field.type == field.TYPE_STRING:
                _check(where, field.name, [value] if isinstance(value, str | bytes) else value)


def _check(where: str, field: str, texts: list[str | bytes]) -> None:
    for text in texts:
        if isinstance(text, bytes):
            shown = shortened(text[:_SHOWN].decode(errors="backslashreplace"), _SHOWN)
            raise ModelError(
                f"{where} is not a valid ONNX model: a text in it is not UTF-8 ({field}: '{shown}')"
            )
