"""Make sparse weights of a model dense, because kernels read whole tensors."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.foundation.plain_text import plain
from neocpu.frontend.checks.model_limits import amount, refuse_ranks
from neocpu.frontend.checks.tensor_check import tensor_problem
from neocpu.frontend.onnx_graph.subgraphs import graphs_of, model_nodes

MAX_BYTES: Final = 2 << 30
"""Bytes of all tensors that are made dense: as many as an ONNX file can contain."""

_SPARSE: Final = onnx.AttributeProto.SPARSE_TENSOR


def make_dense(model: onnx.ModelProto, where: str) -> None:
    """Turn sparse initializers, and sparse attributes of nodes, into dense ones, in place.

    onnx's version converter and evaluator support none. Tensors that violate the standard are a
    `ModelError`; those of strings, or too large in sum, an `UnsupportedError`.
    """
    left = MAX_BYTES

    def dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
        nonlocal left
        try:
            found = _dense(sparse, name, left)
            left -= len(found.raw_data)
            return found
        except ValueError as error:
            raise ModelError(
                f"{where} is not a valid ONNX model: sparse tensor '{plain(name)}' {error}"
            ) from None

    inner = (graph for node in model_nodes(model) for graph in graphs_of(node))
    for graph in (model.graph, *inner):
        graph.initializer.extend(dense(each, each.values.name) for each in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    for node in model_nodes(model):
        for attribute in node.attribute:
            given = [*attribute.sparse_tensors]
            if attribute.HasField("sparse_tensor"):
                given.append(attribute.sparse_tensor)
            if given:
                written = [dense(each, (*node.output, "")[0]) for each in given]
                value = written[0] if attribute.type == _SPARSE else written
                constant = node.op_type == "Constant" and attribute.name == "sparse_value"
                name = "value" if constant else attribute.name
                attribute.CopyFrom(onnx.helper.make_attribute(name, value))


def _dense(sparse: onnx.SparseTensorProto, name: str, left: int) -> onnx.TensorProto:
    """Return a dense tensor of at most ``left`` bytes; a ValueError continues a sentence on it."""
    shape = tuple(sparse.dims)
    _check_parts(sparse)
    refuse_ranks({plain(name): len(shape)})
    if sparse.values.data_type == TensorProto.STRING:
        raise UnsupportedError(f"sparse tensor '{plain(name)}' holds strings; store them whole")
    values = numpy_helper.to_array(sparse.values)
    size = math.prod(shape) * values.dtype.itemsize
    shown = "x".join(map(str, shape))
    if size > left:
        raise UnsupportedError(
            f"sparse tensor '{plain(name)}' of shape {shown} takes {amount(size)} bytes when it is "
            f"dense; all such tensors may take {MAX_BYTES}"
        )
    places = numpy_helper.to_array(sparse.indices)
    extents = shape if places.ndim == 2 else (math.prod(shape),)
    rows = places.reshape(len(values), len(extents))
    if ((rows < 0) | (rows >= extents)).any():
        raise ValueError(f"has an index outside its shape {shown}")
    flat = np.ravel_multi_index(tuple(rows.T), extents)
    if (np.diff(flat) <= 0).any():
        raise ValueError("has indices that do not rise, as ONNX asks for")
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[flat] = values
    return numpy_helper.from_array(dense.reshape(shape), name)


def _check_parts(sparse: onnx.SparseTensorProto) -> None:
    shape, count = list(sparse.dims), [*sparse.values.dims]
    if not shape or min(shape) < 1:
        raise ValueError(f"has the shape {shape}")
    for part, tensor in (("values", sparse.values), ("indices", sparse.indices)):
        if problem := tensor_problem(tensor):
            raise ValueError(f"has {part}, a tensor that {problem}")
    if sparse.indices.data_type != TensorProto.INT64:
        raise ValueError("has indices that are not int64")
    if len(count) != 1 or [*sparse.indices.dims] not in (count, [*count, len(shape)]):
        raise ValueError(
            f"has values of shape {count} and indices of shape {[*sparse.indices.dims]}, which do "
            f"not fit its {len(shape)} dimensions"
        )
