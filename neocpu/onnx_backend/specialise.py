"""Specialise a model for known shapes of its inputs, and known values of some."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.shapes.static_shapes import fix_inputs

AnyArray = np.ndarray[Any, Any]


def specialise(
    model: onnx.ModelProto, arrays: Mapping[str, AnyArray], constants: Collection[str]
) -> onnx.ModelProto:
    """Return the model with static input shapes, and with some inputs as constants.

    Parameters
    ----------
    arrays : mapping of str to array
        All inputs, by name.
    constants : collection of str
        The inputs that become constants.
    """
    special = onnx.ModelProto()
    special.CopyFrom(model)
    fix_inputs(special.graph, {name: arrays[name] for name in arrays if name in constants})
    for value in special.graph.input:
        if value.name in arrays:
            _set_open(value, arrays[value.name].shape)
    return special


def empty_outputs(model: onnx.ModelProto) -> dict[str, AnyArray]:
    """Return the outputs without elements, as far as shape inference finds them."""
    light = strip_weights(model).model
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, IndexError):
        return {}  # the compiler reports what is wrong
    found = {}
    for value in inferred.graph.output:
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        shape = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
        if tensor.HasField("shape") and len(shape) == len(dims) and math.prod(shape) == 0:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            found[value.name] = np.empty(shape, dtype)
    return found


def take_outputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Drop outputs of a model, in place."""
    kept = [value for value in model.graph.output if value.name not in names]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def _set_open(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    """Set an input's dynamic dimensions to the extents of an array; others stay as declared."""
    if not value.type.HasField("tensor_type"):
        return
    dims = value.type.tensor_type.shape.dim
    if not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.SetInParent()
        for extent in shape:
            dims.add().dim_value = extent
    for dim, extent in zip(dims, shape, strict=False):
        if dim.dim_value <= 0:
            dim.dim_value = extent
