"""The model that a reduction starts from: inputs are static, weights its own or random ones."""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx

from neocpu.frontend import models
from neocpu.frontend.shapes.dynamic_inputs import refuse_dynamic_inputs
from neocpu.frontend.shapes.input_shapes import Given, InputShapes
from neocpu.frontend.shapes.static_shapes import fix_values, freeze_shapes
from neocpu.frontend.source import read_model
from neocpu.verification.reduction.random_weights import lift_constants, randomise_weights


def static_model(
    model: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Given],
    *,
    weights: bool = True,
) -> onnx.ModelProto:
    """Read a model or build a network, and fix its inputs' shapes, without simplifying it.

    Without ``weights`` it gets random ones instead of its own.
    """
    given = InputShapes.parse(shapes)
    builtin = isinstance(model, str) and models.is_name(model)
    found = models.build(str(model)) if builtin else read_model(model)
    fix_values(found.graph, given.values)
    freeze_shapes(found.graph, given)
    refuse_dynamic_inputs(found, given)
    lift_constants(found)
    if not weights:
        randomise_weights(found)
    return found
