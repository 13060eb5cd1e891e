"""Give every graph input a static shape, from the model or from the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from neocpu.frontend.tensor_check import is_element_type
from neocpu.runtime.header import DTYPES
from neocpu.schedules.errors import ModelError, UnsupportedError, UsageError, did_you_mean
from neocpu.tensor_spec import TensorSpec

# What to suggest for an unknown dimension: one image, three channels, the usual resolution.
_SUGGESTED_BATCH, _SUGGESTED_CHANNELS, _SUGGESTED_EXTENT = 1, 3, 224


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the graph inputs that are not initializers (IR version 3 lists both as inputs)."""
    initialized = {tensor.name for tensor in graph.initializer}
    initialized |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in initialized]


def freeze_shapes(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Write static shapes into the graph's inputs, in place.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph to change.
    shapes : mapping of str to sequence of int
        Complete shapes by input name. A dimension the model fixes must agree.

    Raises
    ------
    UsageError
        If ``shapes`` names an unknown input, has another rank, a dimension below 1, or
        contradicts a fixed dimension.
    ModelError
        If a dimension stays unknown.
    UnsupportedError
        If an input is not a tensor of numbers.
    """
    inputs = real_inputs(graph)
    known = [value.name for value in inputs]
    for name in shapes:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the inputs are {', '.join(map(repr, known))}"
            raise UsageError(f"--shape names an input '{name}' the model does not have{hint}")
    for value in inputs:
        _check_kind(value)
        if value.name in shapes:
            _set_shape(value, [int(extent) for extent in shapes[value.name]])
        _require_static(value)


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


def _set_shape(value: onnx.ValueInfoProto, shape: list[int]) -> None:
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
                f"[{_dims_text(value)}]"
            )
        for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
            if dim.HasField("dim_value") and dim.dim_value not in (0, extent):
                raise UsageError(
                    f"{given}: the model fixes dimension {axis} of '{value.name}' to "
                    f"{dim.dim_value}; its shape is [{_dims_text(value)}]"
                )
    set_dims(value, shape)


def set_dims(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    """Write a static shape into a value, in place."""
    shape_proto = value.type.tensor_type.shape
    del shape_proto.dim[:]
    for extent in shape:
        shape_proto.dim.add().dim_value = extent
    # An empty shape message still has to be present: it says "scalar", not "unknown rank".
    value.type.tensor_type.shape.SetInParent()


def static_dims(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape if every dimension is known and positive, else None."""
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        return None
    dims = tuple(d.dim_value if d.HasField("dim_value") else 0 for d in tensor_type.shape.dim)
    return dims if all(extent > 0 for extent in dims) else None


def _require_static(value: onnx.ValueInfoProto) -> None:
    if static_dims(value) is not None:
        return
    if not value.type.tensor_type.HasField("shape"):
        raise ModelError(
            f"input '{value.name}' has no declared shape; "
            f"give one with --shape {value.name}:1,3,224,224"
        )
    dims = value.type.tensor_type.shape.dim
    dynamic = [
        f"{axis} ('{dim.dim_param}')" if dim.dim_param else str(axis)
        for axis, dim in enumerate(dims)
        if dim.dim_value <= 0
    ]
    suggestion = ",".join(
        str(dim.dim_value if dim.dim_value > 0 else _suggest(axis, len(dims)))
        for axis, dim in enumerate(dims)
    )
    raise ModelError(
        f"input '{value.name}' has shape [{_dims_text(value)}] with dynamic dimension "
        f"{', '.join(dynamic)}; fix it with --shape {value.name}:{suggestion}"
    )


def _suggest(axis: int, rank: int) -> int:
    if axis == 0:
        return _SUGGESTED_BATCH
    return _SUGGESTED_CHANNELS if axis == 1 and rank >= 4 else _SUGGESTED_EXTENT


def _dims_text(value: onnx.ValueInfoProto) -> str:
    return ", ".join(
        dim.dim_param or (str(dim.dim_value) if dim.dim_value > 0 else "?")
        for dim in value.type.tensor_type.shape.dim
    )


def tensor_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    """Return the name, numpy dtype and static shape of a graph input or output."""
    shape = static_dims(value)
    assert shape is not None, value.name
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return TensorSpec(value.name, str(dtype), shape)
