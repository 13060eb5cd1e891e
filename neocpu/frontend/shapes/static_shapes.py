"""Give every graph input a static shape, from the model or from the caller."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import ModelError, UnsupportedError, UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.checks.tensor_check import is_element_type
from neocpu.frontend.shapes.input_shapes import InputShapes, Value, value_text


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the graph inputs that are not initializers (IR version 3 lists both as inputs)."""
    initialized = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initialized]


def fix_values(graph: onnx.GraphProto, values: Mapping[str, Value]) -> None:
    """Turn inputs into constants, dynamic dimensions into 1; `UsageError` if one does not fit."""
    inputs = {value.name: value for value in real_inputs(graph)}
    arrays = {}
    for name, number in values.items():
        text = f"--shape {name}={value_text(number)}"
        if name not in inputs:
            named = sorted({dim.dim_param for v in inputs.values() for dim in _dims(v)} - {""})
            hint = did_you_mean(name, (*inputs, *named))
            hint = hint or f"; the inputs are {', '.join(map(repr, inputs))}"
            if named:
                hint += f"; the named dimensions are {', '.join(map(repr, named))}"
            raise UsageError(f"{text}: the model has no such input{hint}")
        _check_kind(inputs[name])
        tensor = inputs[name].type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        count = len(number) if isinstance(number, tuple) else 1
        shape = _filled([dim.dim_value for dim in tensor.shape.dim], count)
        size = math.prod(shape)
        if size != count:
            example = ",".join(["0"] * min(size, 9))
            raise UsageError(
                f"{text}: the input is {'x'.join(map(str, shape))}, whose value is given as "
                f"{name}={example}{',…' if size > 9 else ''}, and whose shape as "
                f"{name}:{','.join(map(str, shape))}"
            )
        whole = np.array(number).reshape(shape)
        array = whole.astype(dtype)
        if (array != whole).any() and dtype.kind != "f":
            raise UsageError(f"{text}: the input holds {dtype} numbers")
        arrays[name] = array
    fix_inputs(graph, arrays)


def _filled(extents: Sequence[int], count: int) -> list[int]:
    """Return a shape for a number of elements: an open extent gets the remaining factor, or 1."""
    others = math.prod(extent for extent in extents if extent > 0)
    is_open = [extent <= 0 for extent in extents]
    left = count // others if sum(is_open) == 1 and count % others == 0 else 1
    return [max(left, 1) if free else each for each, free in zip(extents, is_open, strict=True)]


def fix_inputs(graph: onnx.GraphProto, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Turn inputs of a graph into constants, in place."""
    kept = [value for value in graph.input if value.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
    for name, array in values.items():
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))


def freeze_shapes(graph: onnx.GraphProto, shapes: InputShapes) -> Mapping[str, int]:
    """Write the requested shapes into a graph's inputs, in place.

    A dimension of 0 or -1 is dynamic, as in ONNX Runtime. ``--batch`` is written where the first
    dimension is dynamic; the result has inputs where it is 1, as the graph may depend on it. Shapes
    that do not fit the model are a `UsageError`; an input that is no tensor of numbers is a
    `ModelError` or an `UnsupportedError`.
    """
    inputs = real_inputs(graph)
    known = [value.name for value in inputs]
    for name in shapes.by_name:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the inputs are {', '.join(map(repr, known))}"
            raise UsageError(f"--shape names an input '{name}' the model does not have{hint}")
    for value in inputs:
        _check_kind(value)
        if value.name in shapes.by_name:
            _set_shape(value, shapes.by_name[value.name])
    fixed = {} if shapes.batch is None else _give_batch(inputs, shapes, shapes.batch)
    for value in inputs:
        if (shape := shapes.by_name.get(value.name)) and shape != static_dims(value):
            fixed[value.name] = shape[0]
    if len(set(fixed.values())) > 1:
        raise UsageError(
            "inputs of one image cannot take different batches: "
            f"{', '.join(f'{name}:{batch},…' for name, batch in fixed.items())}"
        )
    return fixed


def _give_batch(
    inputs: Sequence[onnx.ValueInfoProto], shapes: InputShapes, batch: int
) -> dict[str, int]:
    """Write the batch where it is dynamic, or return the inputs that have a batch of 1."""
    others = [value for value in inputs if value.name not in shapes.by_name]
    firsts = {v.name: v.type.tensor_type.shape.dim[0] for v in others if _dims(v)}
    dynamic = [dim for dim in firsts.values() if dim.dim_value < 1]
    for dim in dynamic:
        dim.dim_value = batch
    if dynamic or any(dim.dim_value == batch for dim in firsts.values()):
        return {}
    if ones := [name for name, dim in firsts.items() if dim.dim_value == 1]:
        return dict.fromkeys(ones, batch)
    if any(shape[:1] == (batch,) for shape in shapes.by_name.values()):
        return {}
    for name in shapes.by_name:
        shapes.require_batch(name)
    have = "; ".join(f"'{value.name}' is [{dims_text(value)}]" for value in others)
    raise UsageError(
        f"--batch {batch}: no input has a dynamic batch or a batch of 1 ({have or 'there is none'})"
    )


def _check_kind(value: onnx.ValueInfoProto) -> None:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "value of unknown type"
        raise UnsupportedError(f"input '{value.name}' is a {kind}; only tensors are supported")
    element = value.type.tensor_type.elem_type
    if not is_element_type(element):
        raise ModelError(f"input '{value.name}' has no known element type, but {element}")
    if element == onnx.TensorProto.STRING:
        raise UnsupportedError(f"input '{value.name}' holds strings; only numbers are supported")
    kind = str(onnx.helper.tensor_dtype_to_np_dtype(element))
    if kind not in DTYPES:
        raise UnsupportedError(
            f"input '{value.name}' holds {kind} numbers, which modules do not take; they take "
            f"{', '.join(DTYPES)}"
        )


def _set_shape(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    given = f"--shape {value.name}:{','.join(map(str, shape))}"
    for extent in shape:
        if extent < 1:
            raise UsageError(f"{given}: dimensions must be at least 1, got {extent}")
    tensor_type = value.type.tensor_type
    if tensor_type.HasField("shape"):
        dims = tensor_type.shape.dim
        if len(dims) != len(shape):
            raise UsageError(
                f"{given} has {len(shape)} dimensions; input '{value.name}' has {len(dims)}: "
                f"[{dims_text(value)}]"
            )
        for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
            if axis == 0 and dim.dim_value == 1:
                continue  # the batch of a model of one image
            if dim.dim_value > 0 and dim.dim_value != extent:
                raise UsageError(
                    f"{given}: the model fixes dimension {axis} of '{value.name}' to "
                    f"{dim.dim_value}; its shape is [{dims_text(value)}]"
                )
        if dims and dims[0].dim_value == 1:
            shape = (1, *shape[1:])
    set_dims(value, shape)


def set_dims(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    """Write a static shape into a value, in place."""
    shape_proto = value.type.tensor_type.shape
    del shape_proto.dim[:]
    for extent in shape:
        shape_proto.dim.add().dim_value = extent
    # An empty shape message must be present: it means "scalar", not "unknown rank".
    value.type.tensor_type.shape.SetInParent()


def static_dims(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape if every dimension is known and positive, else None."""
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        return None
    dims = tuple(d.dim_value if d.HasField("dim_value") else 0 for d in tensor_type.shape.dim)
    return dims if all(extent > 0 for extent in dims) else None


def _dims(value: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    dims: Sequence[onnx.TensorShapeProto.Dimension] = value.type.tensor_type.shape.dim
    return dims


def dims_text(value: onnx.ValueInfoProto) -> str:
    """Return the text of an input's dimensions: extents, names, and question marks."""
    return ", ".join(
        dim.dim_param or (str(dim.dim_value) if dim.dim_value > 0 else "?") for dim in _dims(value)
    )


def tensor_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    """Return the name, numpy dtype and static shape of a graph input or output."""
    shape = static_dims(value)
    assert shape is not None, value.name
    return TensorSpec(value.name, dtype_name(value), shape)


def dtype_name(value: onnx.ValueInfoProto) -> str:
    """Return the numpy name of a value's element type."""
    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
