"""The model that is quantised: its nodes that compute in integers, and the tensors that they read.

Convolutions, dense layers and sums of feature maps compute in integers. Every tensor that they read
gets a grid. Operators that keep values (maximum pooling, concatenation, reshapes) use the grid of
their result for their inputs, so that integers pass through them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript.rewriter import rewrite
from onnxscript.rewriter.rules import common

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.model_identity import remember
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.opsets.opset_raising import named
from neocpu.frontend.quantised.quantised_operators import is_quantised
from neocpu.frontend.rows.bound_rows import row_values
from neocpu.frontend.shapes.static_shapes import static_dims
from neocpu.frontend.simplify_onnx import simplify_model
from neocpu.frontend.unsupported import OWN_DOMAIN
from neocpu.quantiser.ranges import Array

KEEPING: Final = ("Concat", "Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results consist of values of their inputs."""

_FUSED_NORMS: Final = (
    common.fuse_batchnorm_into_conv_rule,
    common.fuse_batchnorm_into_conv_transpose_rule,
    common.fuse_batchnorm_into_gemm_rule,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Layer:
    """A node with weights that is computed in integers."""

    node: onnx.NodeProto
    data: str  # tensor that it reads
    weights: str  # initializer of its weights
    weight_axis: int  # axis of output channels in the weights
    bias: str | None  # initializer of its bias, a vector
    groups: int = 1  # the number of groups of a convolution

    @property
    def name(self) -> str:
        """The name of the node, or of its result if it has none."""
        return str(self.node.name or self.node.output[0])

    @property
    def result(self) -> str:
        return str(self.node.output[0])

    def outputs_first(self, weights: Array) -> Array:
        """Return weights with output channels first, input channels second."""
        return np.moveaxis(weights, self.weight_axis, 0)

    def as_stored(self, weights: Array) -> Array:
        """Inverse of `outputs_first`."""
        return np.moveaxis(weights, 0, self.weight_axis)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FloatGraph:
    """A float32 model with fixed shapes and fused batch norms, and its parts that are quantised."""

    proto: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    compared: tuple[str, ...]  # outputs, or tensors that their rows are selected by, for errors
    layers: tuple[Layer, ...]
    tensors: tuple[str, ...]  # tensors that get a grid, in program order
    kept: Mapping[str, str]  # tensors that use the grid of another tensor, by name
    initializers: Mapping[str, Array]  # layers' weights and biases


def float_graph(loaded: LoadedModel, exclude: Collection[str] = ()) -> FloatGraph:
    """Return a loaded model in the form that is quantised. `exclude` names nodes (or their results)
    and types of operators that stay in float32. Raises UsageError if the model is quantised already
    or has nothing to quantise, or ``exclude`` has an unknown name.
    """
    with named("fuse the model's batch norms"):
        module = ir.from_proto(_standard(loaded))
        rewrite(module, pattern_rewrite_rules=list(_FUSED_NORMS))
        proto = ir.to_proto(module)
    graph = proto.graph
    of_rows = row_values(graph)
    graph.name = loaded.name
    remember(proto, loaded.identities)
    if is_quantised(proto):
        raise UsageError("the model is quantised already; give the float32 model it was made of")
    _check_excluded(graph, exclude)
    arrays = {each.name: each for each in graph.initializer}
    chosen = [
        node
        for node in graph.node
        if not {node.name, node.op_type, *node.output} & set(exclude)
        and not of_rows.intersection(node.output)
    ]
    layers = [layer for node in chosen if (layer := _layer(node, arrays)) is not None]
    shapes = {
        value.name: static_dims(value)
        for value in (*graph.value_info, *graph.input)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    sums = [node for node in chosen if _is_sum(node, shapes)]
    if not layers:
        raise UsageError("the model has no convolution or dense layer to quantise")
    read = {layer.data for layer in layers} | {name for node in sums for name in node.input}
    tensors, kept = _on_grids(graph, read, arrays)
    wanted = {name for layer in layers for name in (layer.weights, layer.bias) if name}
    return FloatGraph(
        proto=proto,
        inputs=loaded.inputs,
        compared=_compared(graph, of_rows),
        layers=tuple(layers),
        tensors=tensors,
        kept=kept,
        initializers={name: array_of(arrays[name]) for name in wanted},
    )


def _standard(loaded: LoadedModel) -> onnx.ModelProto:
    """Return the simplified model with unrolled loops, because other tools read the result too."""
    if all(node.domain != OWN_DOMAIN for node in loaded.simplified.graph.node):
        return loaded.simplified
    return simplify_model(loaded.original, counted=False)


def _compared(graph: onnx.GraphProto, of_rows: AbstractSet[str]) -> tuple[str, ...]:
    arrays = {each.name for each in graph.initializer}
    judges = (
        name
        for node in graph.node
        if node.op_type == "NonMaxSuppression"
        for name in node.input[:2]
        if name not in of_rows and name not in arrays
    )
    plain = (value.name for value in graph.output if value.name not in of_rows)
    found = tuple(dict.fromkeys((*plain, *judges)))
    return found or _taken_of(graph, of_rows)


def _taken_of(graph: onnx.GraphProto, of_rows: AbstractSet[str]) -> tuple[str, ...]:
    """Return the float tensors that rows are taken from, for models that return only rows."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    read = (name for node in graph.node if of_rows & {*node.output} for name in node.input)
    floats = (name for name in read if kinds.get(name) == onnx.TensorProto.FLOAT)
    arrays = {each.name for each in graph.initializer}
    return tuple(dict.fromkeys(name for name in floats if name not in of_rows | arrays))


def _check_excluded(graph: onnx.GraphProto, exclude: Collection[str]) -> None:
    known = {name for node in graph.node for name in (node.name, node.op_type, *node.output)}
    for name in exclude:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"the model has no node or operator '{name}' to exclude{hint}")


def _layer(node: onnx.NodeProto, arrays: Mapping[str, Any]) -> Layer | None:
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[1] not in arrays:
        return None
    if node.input[0] in arrays or arrays[node.input[1]].data_type != onnx.TensorProto.FLOAT:
        return None
    attributes = attributes_of(node)
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
    axis = 0
    if node.op_type == "MatMul":
        axis = 1
        if len(arrays[node.input[1]].dims) != 2:
            return None
    if node.op_type == "Gemm":
        axis = 0 if attributes.get("transB") else 1
        plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
        if not plain or attributes.get("transA"):
            return None
    if bias is not None and (bias not in arrays or len(arrays[bias].dims) != 1):
        return None
    if bias is not None and arrays[bias].dims[0] != arrays[node.input[1]].dims[axis]:
        return None
    return Layer(
        node=node,
        data=node.input[0],
        weights=node.input[1],
        weight_axis=axis,
        bias=bias,
        groups=attributes.get("group", 1),
    )


def _is_sum(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...] | None]) -> bool:
    if node.op_type != "Add":
        return False
    first, second = (shapes.get(name) for name in node.input)
    return first is not None and first == second and len(first) == 4


def _on_grids(
    graph: onnx.GraphProto, read: Collection[str], arrays: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the tensors with grids of their own, and those with the grid of a derived tensor."""
    own = {name for name in read if name not in arrays}
    kept: dict[str, str] = {}
    readers, outputs = readers_of(graph), {value.name for value in graph.output}
    for node in reversed(graph.node):
        made = node.output[0]
        if node.op_type in KEEPING and (made in own or made in kept):
            several = node.input if node.op_type == "Concat" else node.input[:1]
            for name in several:
                alone = len(readers[name]) == 1 and name not in outputs
                if alone and name not in own and name not in arrays:
                    kept[name] = kept.get(made, made)
    order = [*(value.name for value in graph.input), *_made(graph)]
    floats = [name for name in order if name in own]
    return tuple(floats), kept


def _made(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.output


def readers_of(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    found: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            found[name].append(node)
    return found
