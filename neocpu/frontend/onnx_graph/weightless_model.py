"""Models without weights, for onnx's C++ utilities, which serialise their arguments.

Checking, inlining, version conversion and shape inference of a 500 MB model then cost as much as
those of a 100 kB one, and the protobuf limit of 2 GB does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx
import onnx.inliner
import onnx.version_converter

# More bytes than any shape, axes, scales or pads tensor that a conversion rule has to read.
KEEP_BYTES = 1024

PACKED: Mapping[int, int] = {
    kind: bits
    for name, kind in onnx.TensorProto.DataType.items()
    for bits in (2, 4)
    if name in (f"INT{bits}", f"UINT{bits}", f"FLOAT{bits}E2M1")
}
"""Bits per element of the types that pack several elements into a byte."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A model whose large initializers are graph inputs, and those initializers by name."""

    model: onnx.ModelProto
    weights: Mapping[str, onnx.TensorProto]

    def restore(self, model: onnx.ModelProto) -> None:
        """Put the weights into a model that was made from the skeleton, in place."""
        kept = [value for value in model.graph.input if value.name not in self.weights]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(self.weights.values())


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor's data, in bytes, from its declared shape and type."""
    count = int(math.prod(tensor.dims))
    if tensor.data_type in PACKED:
        return (count * PACKED[tensor.data_type] + 7) // 8
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return count * int(dtype.itemsize)


def strip_weights(model: onnx.ModelProto) -> Skeleton:
    """Split a model into a light skeleton and its weights (referenced, not copied)."""
    light = without_initializers(model)
    weights: dict[str, onnx.TensorProto] = {}
    declared = {value.name for value in light.graph.input}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.STRING or tensor_bytes(tensor) <= KEEP_BYTES:
            light.graph.initializer.append(tensor)
            continue
        weights[tensor.name] = tensor
        if tensor.name not in declared:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return Skeleton(light, weights)


def without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _assign(light, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _assign(light.graph, field.name, value)
    return light


def _assign(target: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    field = getattr(target, name)
    if hasattr(field, "MergeFrom"):
        field.MergeFrom(value)
    else:
        setattr(target, name, value)


def check_model(model: onnx.ModelProto) -> None:
    """Run onnx's checker; shapes of inputs and outputs may be unknown."""
    light = strip_weights(model).model
    for value in (*light.graph.input, *light.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(light)


def infer_shapes(
    model: onnx.ModelProto, *, data_prop: bool = False, strict: bool = False
) -> onnx.ModelProto:
    """Return a model without its weights, with the shapes that onnx infers.

    ``data_prop`` also computes values that decide shapes; contradictions are errors if ``strict``.
    Onnx's C++ code raises InferenceError, ValueError, IndexError or RuntimeError.
    """
    light = strip_weights(model).model
    return onnx.shape_inference.infer_shapes(light, strict_mode=strict, data_prop=data_prop)


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    light = strip_weights(model)
    inlined = onnx.inliner.inline_local_functions(light.model, convert_version=True)
    light.restore(inlined)
    return inlined


def convert_version(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Return a model in another version of the standard operator set."""
    light = strip_weights(model)
    converted = onnx.version_converter.convert_version(light.model, target)
    light.restore(converted)
    return converted
