"""onnx's C++ tools, called on models without weights, because they serialise the model."""

from __future__ import annotations

import onnx
import onnx.inliner
import onnx.version_converter

from neocpu.frontend.onnx_graph.weightless_model import strip_weights


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
    """Return a model with its functions inlined."""
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
