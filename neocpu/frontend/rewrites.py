"""Rewrite an ONNX graph as one that imports better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS


def uses(proto: onnx.ModelProto, *op_types: str) -> bool:
    return any(is_standard(node, *op_types) for node in proto.graph.node)


def optional_input(inputs: Sequence[str], place: int | None) -> str:
    """Return the name of an input; an empty one if it is left out."""
    return inputs[place] if place is not None and place < len(inputs) else ""


def is_standard(node: onnx.NodeProto, *op_types: str) -> bool:
    """Return whether a node is one of the operators in the standard domain."""
    return node.domain in STANDARD_DOMAINS and node.op_type in op_types


def state_resized(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Replace scales of Resize by sizes, in place, where shape inference rounds a size down.

    Inference multiplies in double precision: the float32 next to 0.7 times 70 pixels is 48, but 49
    in runtimes. Nodes whose scale is no quotient of sizes stay. Return whether one was changed.
    """
    constants, changed = constant_tensors(proto.graph), False
    for index, node in enumerate(proto.graph.node):
        # In opset 11, scales are present but empty if there are sizes.
        by_scales = is_standard(node, "Resize") and not optional_input(node.input, 3)
        scales = constants.get(optional_input(node.input, 2)) if by_scales else None
        shape = shapes.get(node.input[0]) if scales is not None else None
        if scales is None or shape is None:
            continue
        factors = array_of(scales)
        axes = attributes_of(node).get("axes", range(len(shape)))
        extents = np.array([shape[axis] for axis in axes])
        sizes = (extents.astype(np.float32) * factors).astype(np.int64)
        inferred = np.floor(extents * factors.astype(np.float64)).astype(np.int64)
        quotients = (sizes / extents).astype(np.float32)
        if (sizes == inferred).all() or (quotients != factors).any():
            continue
        name = f"{node.output[0]}_sizes_{index}"
        proto.graph.initializer.append(onnx.numpy_helper.from_array(sizes, name))
        node.input[2:] = ["", name]
        changed = True
    return changed


def absorb_pads(model: ir.Model) -> None:
    """Move zero padding before convolutions and average poolings into their attributes, in place.

    TensorFlow's converters write strided convolutions as Pad and Conv, PyTorch's wrote
    ``avg_pool2d(padding=1)`` as Pad and AveragePool. A quantisation between may keep zero.
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
        if node.attributes.get_int("ceil_mode", 0):
            continue  # a last window may begin in a Pad's zeros, but not in its own pads
        own = list(node.attributes.get_ints("pads", [0] * len(spatial)))
        if node.op_type == "AveragePool":
            # The zeros of Pad count in the mean, so they cannot join pads that do not count.
            if any(own) and not node.attributes.get_int("count_include_pad", 0):
                continue
            node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
        node.attributes.pop("auto_pad", None)
        summed = [a + b for a, b in zip(own, spatial, strict=True)]
        node.attributes["pads"] = ir.AttrInt64s("pads", summed)
        data = pad.inputs[0]
        assert data is not None  # its shape is known
        reader.replace_input_with(0, data)
        for each in rounding:
            each.outputs[0].shape = data.shape


def _rounding_above(node: ir.Node) -> tuple[ir.Node, ...]:
    """Return the quantisation and its inverse that only ``node`` reads, if they keep 0."""
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
    """Return the begin and end pads of a Pad's spatial axes, if it only adds zeros there."""
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
    if value is None or value.const_value is None:
        return None
    elements: list[float] = value.const_value.numpy().reshape(-1).tolist()
    return elements
