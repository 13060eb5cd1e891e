"""Extents of a model's named dimensions, as ``--shape batch=4`` sets them."""

from __future__ import annotations

from dataclasses import replace

import onnx

from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.input_shapes import InputShapes, value_text
from neocpu.frontend.shapes.static_shapes import real_inputs, static_dims


def fix_dimensions(graph: onnx.GraphProto, shapes: InputShapes) -> InputShapes:
    """Write the extents of named dimensions into a graph's inputs, in place.

    The result lacks these values, and has the input shapes that they decide. Raises a `UsageError`
    if an extent is not a whole number of 1 or more, or contradicts the shape of an input.
    """
    inputs = real_inputs(graph)
    known = {value.name for value in inputs}
    dims = [
        (value, axis, dim)
        for value in inputs
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    names = {dim.dim_param for *_, dim in dims if dim.dim_param} - known
    extents = {}
    for name, extent in shapes.values.items():
        if name not in names:
            continue
        if isinstance(extent, tuple) or extent < 1 or extent != int(extent):
            raise UsageError(
                f"--shape {name}={value_text(extent)}: a dimension is a whole number, 1 or more"
            )
        extents[name] = int(extent)
    found = {}
    for value, axis, dim in dims:
        if dim.dim_param in extents:
            _check_agrees(value.name, axis, dim.dim_param, extents[dim.dim_param], shapes)
            dim.dim_value = extents[dim.dim_param]
            found[value.name] = value
    named = {name: shape for name, value in found.items() if (shape := static_dims(value))}
    values = {name: each for name, each in shapes.values.items() if name not in extents}
    return replace(shapes, by_name={**named, **shapes.by_name}, values=values)


def _check_agrees(name: str, axis: int, dimension: str, extent: int, shapes: InputShapes) -> None:
    shape = shapes.by_name.get(name, ())
    if axis < len(shape) and shape[axis] != extent:
        raise UsageError(
            f"--shape {dimension}={extent} and --shape {name}:{','.join(map(str, shape))} "
            "contradict each other"
        )
