"""Refuse inputs of unknown shape, and suggest shapes that work."""

from __future__ import annotations

import onnx

from neocpu.foundation.errors import ModelError
from neocpu.frontend.checks.conflicts import first_fitting
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.shapes.candidate_shapes import candidate_shapes, option
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.static_shapes import dims_text, real_inputs, static_dims


def refuse_dynamic_inputs(model: onnx.ModelProto, given: InputShapes) -> None:
    """Raise a `ModelError` if an input's shape is unknown after the requested shapes were written.

    The message names the first one, and candidate shapes for all of them that fit the model, or the
    likeliest if none fits.
    """
    unknown = [value for value in real_inputs(model.graph) if static_dims(value) is None]
    if not unknown:
        return
    likeliest = next(candidate_shapes(unknown, given.batch))
    skeleton = strip_weights(model).model
    shapes = first_fitting(skeleton, candidate_shapes(unknown, given.batch)) or likeliest
    value, options = unknown[0], " ".join(option(*each) for each in shapes.items())
    if not value.type.tensor_type.HasField("shape"):
        raise ModelError(f"input '{value.name}' has no declared shape; give one with {options}")
    dims = value.type.tensor_type.shape.dim
    dynamic = [
        f"{axis} ('{dim.dim_param}')" if dim.dim_param else str(axis)
        for axis, dim in enumerate(dims)
        if dim.dim_value <= 0
    ]
    only_batch = all(
        dim.dim_value > 0 for each in unknown for dim in each.type.tensor_type.shape.dim[1:]
    )
    raise ModelError(
        f"input '{value.name}' has shape [{dims_text(value)}] with dynamic dimension "
        f"{', '.join(dynamic)}; fix it with {options}{' or --batch 1' if only_batch else ''}"
    )
