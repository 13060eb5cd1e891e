"""Weights that a model stores sparsely become dense ones: kernels read all of a tensor."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.checks.tensor_check import tensor_problem

MAX_BYTES: Final = 2 << 30
"""Of a tensor that is made dense: what an ONNX file itself may hold."""


def make_dense(model: onnx.ModelProto, where: str) -> None:
    """Turn sparse initializers into others, in place.

    Parameters
    ----------
    where : str
        The model, for messages.

    Raises
    ------
    ModelError
        Of one whose indices do not fit its values and shape.
    UnsupportedError
        Of one that is too large, or in a file of its own.
    """
    graph = model.graph
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, f"{where}: sparse tensor '{sparse.values.name}'"))
    del graph.sparse_initializer[:]


def _dense(sparse: onnx.SparseTensorProto, what: str) -> onnx.TensorProto:
    for tensor in (sparse.values, sparse.indices):
        if uses_external_data(tensor):
            raise UnsupportedError(f"{what} is in an external file; save it inside the model")
        if problem := tensor_problem(tensor):
            raise ModelError(f"{what} {problem}")
    shape = tuple(sparse.dims)
    values = onnx.numpy_helper.to_array(sparse.values)
    size = math.prod(shape) * values.dtype.itemsize
    if min(shape, default=1) < 0 or size > MAX_BYTES:
        raise UnsupportedError(
            f"{what} of shape {'x'.join(map(str, shape))} takes {size} bytes when it is dense; at "
            f"most {MAX_BYTES} are supported"
        )
    dense = np.zeros(shape, values.dtype)
    dense.reshape(-1)[_places(sparse, values, shape, what)] = values
    return onnx.numpy_helper.from_array(dense, sparse.values.name)


def _places(sparse: onnx.SparseTensorProto, values: Any, shape: tuple[int, ...], what: str) -> Any:
    """Return where each value stands among all elements, in order of rows."""
    indices = onnx.numpy_helper.to_array(sparse.indices)
    linear = indices.shape == values.shape
    if values.ndim != 1 or not (linear or indices.shape == (*values.shape, len(shape))):
        raise ModelError(f"{what} has indices of shape {indices.shape} for {values.size} values")
    if indices.dtype != np.int64:
        raise ModelError(f"{what} has indices of {indices.dtype}, which are int64")
    limits = np.array([math.prod(shape)] if linear else shape)
    rows = indices.reshape(values.size, len(limits))
    if (rows < 0).any() or (rows >= limits).any():
        raise ModelError(f"{what} has an index outside its shape {'x'.join(map(str, shape))}")
    return rows[:, 0] if linear else np.ravel_multi_index(tuple(rows.T), shape)
