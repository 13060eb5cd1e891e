"""Raise a model to a newer opset without changing its results.

Some operators changed their meaning, and ONNX's version converter gets these wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.onnx_graph.weightless_model import convert_version, inline_functions
from neocpu.frontend.rewrites import is_standard, uses
from neocpu.frontend.shapes.extents import known_shapes, refuse_axes
from neocpu.frontend.source import first_line
from neocpu.frontend.unsupported import describe, node_name

IR_VERSION = 10


def opset_of(model: onnx.ModelProto) -> int:
    """Return the model's version of the standard operator set."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return int(versions[0]) if versions else 1


def raise_opset(proto: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Return a model, changed, in opset ``target`` or newer, or raise an `UnsupportedError`."""
    if opset_of(proto) < 7:
        with named("infer the shapes of the model"):
            channel_slopes(proto)
    if opset_of(proto) < 9 and uses(proto, "BatchNormalization"):
        spread_batch_norms(proto)
    if opset_of(proto) < 13 and uses(proto, "Hardmax", "LogSoftmax", "Softmax"):
        # Before they are flattened, which would accept an axis after the last one.
        with named("infer the shapes of the model"):
            shaped = onnx.shape_inference.infer_shapes(proto)
        refuse_axes(shaped.graph)
        flatten_old_hardmax(proto)
    if opset_of(proto) < 11 and uses(proto, "Resize", "Upsample"):
        proto = _converted(proto, 11)
        anchor_old_resizes(proto)
    return proto if opset_of(proto) >= target else _converted(proto, target)


def without_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined; the same model if it has none."""
    if not proto.functions:
        return proto
    with named("inline the model's functions"):
        return inline_functions(proto)


def _converted(proto: onnx.ModelProto, target: int) -> onnx.ModelProto:
    inlined = without_functions(proto)  # the converter would drop functions
    try:
        raised = convert_version(inlined, target)
    except Exception as error:  # the C++ converter has no exception type of its own
        raise UnsupportedError(
            f"cannot raise the model from opset {opset_of(proto)} to {target}: "
            f"{first_line(error)}; export it again with a newer opset"
        ) from error
    raised.ir_version = IR_VERSION
    return raised


@contextmanager
def named(task: str) -> Iterator[None]:
    """Turn errors of onnx's tools, which have many types, into one that names the task."""
    try:
        yield
    except NeoCPUError:
        raise
    except Exception as error:
        raise UnsupportedError(f"cannot {task}: {first_line(error)}") from error


def anchor_old_resizes(proto: onnx.ModelProto) -> None:
    """Give Resize nodes raised from opset 10 or older their former coordinates, in place.

    Opset 11 introduced the choice, with another default, which the version converter keeps. Before,
    the first pixel stayed in place, and coordinates were rounded down (up when shrinking).
    """
    constants = constant_tensors(proto.graph)
    for index, node in reversed(list(enumerate(proto.graph.node))):
        if not is_standard(node, "Resize"):
            continue
        tensor = constants.get(node.input[2])
        scales = None if tensor is None else array_of(tensor)
        shrinks = scales is not None and bool((scales < 1).any())
        if scales is not None and shrinks and (scales > 1).any():
            _anchor(_resize_in_two(proto.graph, index, scales), shrinks=False)
        _anchor(node, shrinks=shrinks)


def _resize_in_two(
    graph: onnx.GraphProto, index: int, scales: np.ndarray[Any, Any]
) -> onnx.NodeProto:
    """Let a Resize shrink its axes only; return a new one, after it, that enlarges the others."""
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
    rounding = "ceil" if shrinks else "floor"
    words = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    node.attribute.extend([*kept, *(onnx.helper.make_attribute(*word) for word in words.items())])


def flatten_old_hardmax(proto: onnx.ModelProto) -> None:
    """Give Hardmax of opset 12 and older its former flattening, in place.

    It worked jointly on all dimensions from ``axis`` on, by default from 1. The version converter
    knows that for Softmax only.
    """
    for index, node in reversed(list(enumerate(proto.graph.node))):
        if not is_standard(node, "Hardmax"):
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        writer = NodeWriter(f"{node.output[0]}_hardmax_{index}_", node_name(node))
        flat = writer.op("Flatten", node.input[0], axis=axis)
        hot = writer.op("Hardmax", flat, axis=1)
        writer.op("Reshape", hot, writer.op("Shape", node.input[0]), output=node.output[0])
        _replace(proto.graph, index, writer)


def channel_slopes(proto: onnx.ModelProto) -> None:
    """Give PRelu of opset 6 and older the slope shape that opset 7 requires, in place.

    Its slope had one value per channel. Later slopes broadcast as in numpy, from the right, and the
    version converter does not distinguish them.
    """
    if not uses(proto, "PRelu"):
        return
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    values = [*inferred.input, *inferred.value_info, *inferred.output]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    for index, node in reversed(list(enumerate(proto.graph.node))):
        rank = ranks.get(node.input[0], 0) if is_standard(node, "PRelu") else 0
        if rank > 2:
            name = f"{node.input[1]}_per_channel_{index}"
            axes = list(range(1, rank - 1))
            reshape = onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
            node.input[1] = name
            proto.graph.node.insert(index, reshape)


def spread_batch_norms(proto: onnx.ModelProto) -> None:
    """Rewrite batch normalisations that are not ``spatial`` (opset 8 and older), in place.

    Their statistics are those of each element of an image. MXNet also sets the attribute if
    statistics are vectors, of each channel; these are normalisations of the newer form.
    """
    shapes = dict(known_shapes(onnx.shape_inference.infer_shapes(proto).graph))
    constants = constant_tensors(proto.graph)
    shapes |= {name: tuple(tensor.dims) for name, tensor in constants.items()}
    for index, node in reversed(list(enumerate(proto.graph.node))):
        flat = [a for a in node.attribute if a.name == "spatial" and not a.i]
        if not is_standard(node, "BatchNormalization") or not flat:
            continue
        node.attribute.remove(flat[0])
        if node.input[1] not in shapes:
            raise ModelError(f"{describe(node)}: the shape of its scale is not known")
        if len(shapes[node.input[1]]) == 1:
            continue
        x, scale, bias, mean, variance = node.input
        writer = NodeWriter(f"{node.output[0]}_spread_{index}_", node_name(node))
        epsilon = writer.const(np.float32(attributes_of(node).get("epsilon", 1e-5)))
        root = writer.op("Sqrt", writer.op("Add", variance, epsilon))
        normal = writer.op("Div", writer.op("Sub", x, mean), root)
        writer.op("Add", writer.op("Mul", normal, scale), bias, output=node.output[0])
        _replace(proto.graph, index, writer)


def _replace(graph: onnx.GraphProto, index: int, writer: NodeWriter) -> None:
    graph.initializer.extend(writer.tensors)
    del graph.node[index]
    for made in reversed(writer.nodes):
        graph.node.insert(index, made)
