"""Rewritings of one ONNX graph into another that imports better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from neocpu.frontend.constant_tensors import constant_tensors
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS


def uses(proto: onnx.ModelProto, *op_types: str) -> bool:
    """Return whether the graph has a node of one of the operators."""
    return any(_is(node, *op_types) for node in proto.graph.node)


def optional_input(inputs: Sequence[str], place: int | None) -> str:
    """Return the name of an input; an empty one where it is left out."""
    return inputs[place] if place is not None and place < len(inputs) else ""


def _is(node: onnx.NodeProto, *op_types: str) -> bool:
    return node.domain in STANDARD_DOMAINS and node.op_type in op_types


def anchor_old_resizes(proto: onnx.ModelProto) -> None:
    """Give Resize nodes raised from opset 10 or older the coordinates they had, in place.

    Opset 11 brought the choice, with another default, and the version converter leaves it at that:
    it used to be the first pixel that stays in place, rounded down (up when shrinking).
    """
    constants = constant_tensors(proto.graph)
    for index, node in reversed(list(enumerate(proto.graph.node))):
        if not _is(node, "Resize"):
            continue
        tensor = constants.get(node.input[2])
        scales = None if tensor is None else onnx.numpy_helper.to_array(tensor)
        shrinks = scales is not None and bool((scales < 1).any())
        if scales is not None and shrinks and (scales > 1).any():
            _anchor(_resize_in_two(proto.graph, index, scales), shrinks=False)
        _anchor(node, shrinks=shrinks)


def _resize_in_two(
    graph: onnx.GraphProto, index: int, scales: np.ndarray[Any, Any]
) -> onnx.NodeProto:
    """Leave to a Resize the axes that it shrinks; return another, after it, for the others."""
    node = graph.node[index]
    between, second = f"{node.output[0]}_shrunk_{index}", onnx.NodeProto()
    second.CopyFrom(node)
    for each, factors in ((node, np.minimum(scales, 1)), (second, np.maximum(scales, 1))):
        name = f"{between}_scales_{each is second:d}"
        graph.initializer.append(onnx.numpy_helper.from_array(factors, name))
        each.input[2] = name
    node.output[0] = second.input[0] = between
    graph.node.insert(index + 1, second)
    return graph.node[index + 1]


def _anchor(node: onnx.NodeProto, *, shrinks: bool) -> None:
    kept = [a for a in node.attribute if a.name == "mode"]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(
        [
            onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
            onnx.helper.make_attribute("nearest_mode", "ceil" if shrinks else "floor"),
        ]
    )


def state_resized(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Give Resize nodes sizes for scales, in place, where inference rounds a size down too far.

    It multiplies in double precision: of 70 pixels, the float32 next to 0.7 leaves 48, and 49 in
    every runtime. Where a scale is no quotient of sizes, the node stays as it is.

    Returns
    -------
    bool
        Whether there were any.
    """
    constants, changed = constant_tensors(proto.graph), False
    for index, node in enumerate(proto.graph.node):
        # Of opset 11, scales beside sizes are there, and empty.
        by_scales = _is(node, "Resize") and not optional_input(node.input, 3)
        scales = constants.get(optional_input(node.input, 2)) if by_scales else None
        shape = shapes.get(node.input[0]) if scales is not None else None
        if scales is None or shape is None:
            continue
        factors = onnx.numpy_helper.to_array(scales)
        axes = attributes_of(node).get("axes", range(len(shape)))
        extents = np.array([shape[axis] for axis in axes])
        sizes = (extents.astype(np.float32) * factors).astype(np.int64)
        told = np.floor(extents * factors.astype(np.float64)).astype(np.int64)
        quotients = (sizes / extents).astype(np.float32)
        if (sizes == told).all() or (quotients != factors).any():
            continue
        name = f"{node.output[0]}_sizes_{index}"
        proto.graph.initializer.append(onnx.numpy_helper.from_array(sizes, name))
        node.input[2:] = ["", name]
        changed = True
    return changed


def flatten_old_hardmax(proto: onnx.ModelProto) -> None:
    """Give Hardmax of opset 12 and older the flattening it had, in place.

    It worked on all dimensions from ``axis`` on, 1 by default, together. The version converter
    knows that of Softmax alone.
    """
    for index, node in reversed(list(enumerate(proto.graph.node))):
        if not _is(node, "Hardmax"):
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        shape, flat, hot = (f"{node.output[0]}_{part}_{index}" for part in ("shape", "flat", "hot"))
        before = [
            onnx.helper.make_node("Shape", [node.input[0]], [shape]),
            onnx.helper.make_node("Flatten", [node.input[0]], [flat], axis=axis),
        ]
        after = onnx.helper.make_node("Reshape", [hot, shape], [node.output[0]])
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("axis", 1))
        node.input[0], node.output[0] = flat, hot
        proto.graph.node.insert(index + 1, after)
        for made in reversed(before):
            proto.graph.node.insert(index, made)


def channel_slopes(proto: onnx.ModelProto) -> None:
    """Give PRelu of opset 6 and older the slope shape that opset 7 asks for, in place.

    Its slope used to be one value per channel; later ones broadcast as numpy does, from the right,
    and the version converter does not tell them apart.
    """
    if not uses(proto, "PRelu"):
        return
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    values = [*inferred.input, *inferred.value_info, *inferred.output]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    for index, node in reversed(list(enumerate(proto.graph.node))):
        rank = ranks.get(node.input[0], 0) if _is(node, "PRelu") else 0
        if rank > 2:
            name = f"{node.input[1]}_per_channel_{index}"
            axes = list(range(1, rank - 1))
            reshape = onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
            node.input[1] = name
            proto.graph.node.insert(index, reshape)


def absorb_pads(model: ir.Model) -> None:
    """Move zero padding in front of a convolution or average pooling into its attributes, in place.

    TensorFlow's converters write every strided convolution as Pad and Conv, and PyTorch's wrote
    ``avg_pool2d(padding=1)`` as Pad and AveragePool. A Pad left without users is dead code.
    Quantisers round what lies between, too, where zeros stay zeros.
    """
    for node in model.graph:
        if node.domain not in STANDARD_DOMAINS or node.op_type not in ("Conv", "AveragePool"):
            continue
        rounding = _rounding_above(node)
        reader = rounding[0] if rounding else node
        pad = reader.inputs[0].producer() if reader.inputs[0] is not None else None
        if pad is None or pad.op_type != "Pad" or pad.domain not in STANDARD_DOMAINS:
            continue
        spatial = _zero_spatial_pads(pad)
        if spatial is None or node.attributes.get_string("auto_pad", "NOTSET") not in (
            "NOTSET",
            "VALID",
        ):
            continue
        own = list(node.attributes.get_ints("pads", [0] * len(spatial)))
        if node.op_type == "AveragePool":
            # The zeros of Pad count in the mean; pads of its own that do not count cannot mix.
            if any(own) and not node.attributes.get_int("count_include_pad", 0):
                continue
            node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
        node.attributes.pop("auto_pad", None)
        summed = [a + b for a, b in zip(own, spatial, strict=True)]
        node.attributes["pads"] = ir.AttrInt64s("pads", summed)
        data = pad.inputs[0]
        assert data is not None  # or its shape were not known
        reader.replace_input_with(0, data)
        for each in rounding:
            each.outputs[0].shape = data.shape


def _rounding_above(node: ir.Node) -> tuple[ir.Node, ...]:
    """Return the quantisation and its inverse that only ``node`` reads first, if 0 stays 0."""
    value = node.inputs[0]
    dequantise = value.producer() if value is not None else None
    if dequantise is None or dequantise.op_type != "DequantizeLinear" or not dequantise.inputs:
        return ()
    stored = dequantise.inputs[0]
    quantise = stored.producer() if stored is not None else None
    if quantise is None or quantise.op_type != "QuantizeLinear":
        return ()
    pair = (quantise, dequantise)
    if any(each.domain not in STANDARD_DOMAINS for each in pair) or any(
        len(each.outputs[0].uses()) != 1 or each.outputs[0].is_graph_output() for each in pair
    ):
        return ()
    zeros = [each.inputs[2] if len(each.inputs) > 2 else None for each in pair]
    if zeros[0] is zeros[1] is None:
        return pair
    first, second = map(_constant, zeros)
    return pair if first is not None and first == second else ()


def _zero_spatial_pads(pad: ir.Node) -> list[int] | None:
    """Return a Pad's begin and end pads of the spatial axes, if it only adds zeros there."""
    inputs = [*pad.inputs, None, None, None][:4]
    data, pads, fill, axes = inputs
    if (
        data is None
        or data.shape is None
        or pad.attributes.get_string("mode", "constant") != ("constant")
    ):
        return None
    amounts, value, which = (_constant(pads), _constant(fill), _constant(axes))
    if amounts is None or (fill is not None and value is None) or (axes is not None and not which):
        return None
    if value and any(element != 0 for element in value):
        return None
    rank = len(data.shape)
    chosen = [int(axis) % rank for axis in which] if which else list(range(rank))
    full = [0] * (2 * rank)
    for index, axis in enumerate(chosen):
        full[axis] = int(amounts[index])
        full[rank + axis] = int(amounts[len(chosen) + index])
    if any(full[:2]) or any(full[rank : rank + 2]) or min(full) < 0:
        return None
    return full[2:rank] + full[rank + 2 :]


def _constant(value: ir.Value | None) -> list[float] | None:
    """Return a constant value's elements, or None."""
    if value is None or value.const_value is None:
        return None
    elements: list[float] = value.const_value.numpy().reshape(-1).tolist()
    return elements
