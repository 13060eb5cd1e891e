"""Refuse tensors that no kernel can compute: empty or huge ones, and windows that do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.checks.model_limits import refuse_ranks
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.input_shapes import MAX_ELEMENTS
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

MAX_LIST = 1 << 24  # the most integers of a one-dimensional input
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_WINDOWED = ("Conv", "MaxPool", "AveragePool", "LpPool")
_WEIGHTED = ("Conv", "ConvTranspose", "DeformConv")
"""Operators whose kernel has the extents of the weights."""
_COUNTS = ("dilations", "group", "kernel_shape", "pooled_shape", "strides")
"""Attributes that are at least 1, whatever the operator."""
_NEW_AXIS = ("Flatten", "OneHot")  # operators whose axis may be after the last dimension
_AXIS_IGNORED = ("DequantizeLinear", "QuantizeLinear")
"""Operators that often have an axis although they have only one scale, and need none."""

_Shapes = Mapping[str, tuple[int, ...]]


def refuse_inputs(graph: onnx.GraphProto) -> None:
    """Raise an `UnsupportedError` if an input is too large, before anything is inferred from it.

    If an input could be a shape, inference writes as many dimensions as it has elements. An input
    that is also an output of another shape is a `ModelError`.
    """
    shapes = known_shapes(graph)
    _refuse_sizes(shapes, {value.name: "the model has input" for value in graph.input})
    _refuse_two_shapes(graph, shapes)
    for value in graph.input:
        (length, *others) = (*shapes.get(value.name, ()), 0)
        integers = value.type.tensor_type.elem_type in _INTEGERS
        if integers and others == [0] and length > MAX_LIST:
            raise UnsupportedError(
                f"the model has input '{value.name}', a list of {length} integers; at most "
                f"{MAX_LIST} are supported"
            )


def _refuse_two_shapes(graph: onnx.GraphProto, shapes: _Shapes) -> None:
    """Raise if an input is also an output that declares another shape."""
    inputs = {value.name for value in graph.input}
    for value in graph.output:
        shape = shapes.get(value.name)
        if shape is None or value.name not in inputs:
            continue
        dims = value.type.tensor_type.shape.dim
        given = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        if len(given) == len(shape) and any(
            its not in (None, mine) for its, mine in zip(given, shape, strict=True)
        ):
            raise ModelError(
                f"the model's input '{value.name}' of shape {'x'.join(map(str, shape))} is also an "
                "output, which it declares with another shape: make them agree"
            )


def refuse_extents(graph: onnx.GraphProto) -> None:
    """Raise if a window is empty or exceeds its image, or a tensor is empty or too large."""
    shapes = known_shapes(graph)
    refuse_axes(graph)
    refuse_kernels(graph)
    for node in graph.node:
        if node.domain not in STANDARD_DOMAINS:
            continue
        _refuse_counts(node)
        if node.op_type in _WINDOWED and (misfit := _misfit(node, shapes)):
            extent, padded = misfit
            raise UnsupportedError(
                f"{describe(node)}: its kernel spans {extent} pixels, its padded input has "
                f"{padded}; use a larger input (--shape) or more padding"
            )
    makers = {value.name: "the model has input" for value in graph.input}
    makers |= {name: f"{describe(node)} makes" for node in graph.node for name in node.output}
    refuse_ranks({name: len(shape) for name, shape in shapes.items()}, makers)
    _refuse_sizes(shapes, makers)


def _refuse_sizes(shapes: _Shapes, makers: Mapping[str, str]) -> None:
    """Raise if a tensor is empty or too large; ``makers`` has the beginnings of messages."""
    for name, where in makers.items():
        shape = shapes.get(name, ())
        text = "x".join(map(str, shape))
        if min(shape, default=1) < 1:
            raise UnsupportedError(f"{where} '{name}' of shape {text}, which has no elements")
        elements = math.prod(shape)
        if elements > MAX_ELEMENTS:
            raise UnsupportedError(
                f"{where} '{name}' of shape {text}, which has {elements} elements; at most "
                f"{MAX_ELEMENTS} are supported: use a smaller input or batch (--shape)"
            )


def _refuse_counts(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        numbers = [*attribute.ints] or [attribute.i]
        if attribute.name in _COUNTS and min(numbers) < 1:
            raise UnsupportedError(
                f"{describe(node)}: its {attribute.name} {numbers} must be 1 or more"
            )
        if attribute.name in _COUNTS and max(numbers) > MAX_ELEMENTS:
            raise UnsupportedError(
                f"{describe(node)}: its {attribute.name} {numbers} must be at most {MAX_ELEMENTS}"
            )


def refuse_kernels(graph: onnx.GraphProto) -> None:
    """Raise a `ModelError` if ``kernel_shape``, which inference believes, contradicts weights."""
    shapes = known_shapes(graph)
    for node in graph.node:
        weights = shapes.get((*node.input, "", "")[1], ())[2:]
        if node.op_type not in _WEIGHTED or node.domain not in STANDARD_DOMAINS or not weights:
            continue
        for attribute in node.attribute:
            kernel = tuple(attribute.ints)
            if attribute.name == "kernel_shape" and kernel != weights:
                raise ModelError(
                    f"{describe(node)}: its kernel_shape is {'x'.join(map(str, kernel))}, its "
                    f"weights are {'x'.join(map(str, weights))}: make them agree"
                )


def refuse_axes(graph: onnx.GraphProto) -> None:
    """Raise if a node works along an axis that its input lacks, or twice along the same axis."""
    shapes = known_shapes(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        shape = shapes.get(node.input[0]) if node.input else None
        if shape is None or node.domain not in STANDARD_DOMAINS:
            continue
        _refuse_axis(node, len(shape))
        if node.op_type.startswith("Reduce"):
            _refuse_repeated_axes(node, len(shape), constants)


def _refuse_axis(node: onnx.NodeProto, rank: int) -> None:
    axes = rank + (node.op_type in _NEW_AXIS)
    for attribute in node.attribute:
        is_axis = attribute.name == "axis" and node.op_type not in _AXIS_IGNORED
        if is_axis and not -axes <= attribute.i < axes:
            raise UnsupportedError(
                f"{describe(node)}: its axis {attribute.i} is out of range for {rank} dimensions"
            )


def _refuse_repeated_axes(
    node: onnx.NodeProto, rank: int, constants: Mapping[str, onnx.TensorProto]
) -> None:
    axes = [axis for a in node.attribute if a.name == "axes" for axis in a.ints]
    given = constants.get((*node.input, "")[1])
    if given is not None:
        axes = array_of(given).ravel().tolist()
    # A reduction of a scalar may name an axis, too.
    if len({axis % max(rank, 1) for axis in axes}) < len(axes):
        raise UnsupportedError(
            f"{describe(node)}: its axes {axes} name one of its {rank} dimensions twice"
        )


def _misfit(node: onnx.NodeProto, shapes: _Shapes) -> tuple[int, int] | None:
    """Return the extents of a kernel and padded image on an axis where it does not fit, or None."""
    attributes = attributes_of(node)
    image = shapes.get(node.input[0], ())[2:]
    kernel = attributes.get("kernel_shape") or shapes.get((*node.input, "")[1], ())[2:]
    rank = len(image)
    pads = attributes.get("pads") or [0] * (2 * rank)
    dilations, strides = (attributes.get(a) or [1] * rank for a in ("dilations", "strides"))
    lengths = {len(kernel), len(dilations), len(strides), len(pads) / 2}
    pads_itself = attributes.get("auto_pad", b"").startswith(b"SAME")
    if lengths != {rank} or min(image, default=0) < 1 or pads_itself:
        return None
    for axis, (size, taps) in enumerate(zip(image, kernel, strict=True)):
        padded = size + pads[axis] + pads[axis + rank]
        extent = (taps - 1) * dilations[axis] + 1
        # In ceil mode, a window may extend beyond by less than a stride.
        beyond = strides[axis] - 1 if attributes.get("ceil_mode") else 0
        if extent > padded + beyond:
            return extent, padded
    return None


def known_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors without unknown dimensions; inputs override outputs."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.output, *graph.input):
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes
