"""Write operators without a converter as operators that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.expansions.bodies import BODIES, has_body, inline_bodies
from neocpu.frontend.expansions.einsum import einsum
from neocpu.frontend.expansions.empty_tensors import drop_empty, split_constant
from neocpu.frontend.expansions.matrices import affine_grid, determinant, eye_like, list_numbers
from neocpu.frontend.expansions.pool_places import max_pool_places
from neocpu.frontend.expansions.sequences import (
    cumulative_product,
    reverse_sequence,
    tensor_scatter,
)
from neocpu.frontend.expansions.slice_updates import join_slice_update
from neocpu.frontend.expansions.training import batch_statistics, dropout_mask
from neocpu.frontend.expansions.windows import deformable_convolution
from neocpu.frontend.expansions.writer import Graph, Writer
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.source import first_line
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe, node_name

EXPANSIONS: Final[Mapping[str, Callable[[Writer], None]]] = {
    "AffineGrid": affine_grid,
    "BatchNormalization": batch_statistics,
    "CumProd": cumulative_product,
    "DeformConv": deformable_convolution,
    "Det": determinant,
    "Dropout": dropout_mask,
    "Einsum": einsum,
    "EyeLike": eye_like,
    "MaxPool": max_pool_places,
    "ReverseSequence": reverse_sequence,
    "ScatterND": join_slice_update,
    "Slice": list_numbers,
    "Split": split_constant,
    "Squeeze": list_numbers,
    "TensorScatter": tensor_scatter,
    "Unsqueeze": list_numbers,
}
"""The expansion of each operator. It writes nothing if the node is better left to its converter."""


WRITTEN_OUT: Final = BODIES | EXPANSIONS.keys()
"""Operators that a model may have, but no imported graph."""


def expand_operators(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model with such nodes written as others, or None if it has none.

    Parameters
    ----------
    model : onnx.ModelProto
        A simplified model: constants are initializers, and shapes are inferred. It is not changed.

    Raises
    ------
    UnsupportedError
        A node has a form that cannot be written as others; the message names it.
    """
    graph = model.graph
    results = {value.name for value in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    known = Graph(known_shapes(graph), _types(graph), constant_tensors(graph), makers, results)
    if any(has_body(node) for node in graph.node):
        return inline_bodies(model, known)
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = FreshNames(names).prefix("expanded_")
    written = [_expanded(node, known, f"{prefix}{i}_") for i, node in enumerate(graph.node)]
    if not any(isinstance(each, Writer) for each in written):
        return None
    return _with_nodes(model, written)


def _expanded(node: onnx.NodeProto, known: Graph, prefix: str) -> Writer | onnx.NodeProto:
    """Return the writer of a node's replacement, or the node itself."""
    writer = Writer(prefix, node_name(node), node=node, graph=known)
    expand = EXPANSIONS.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
    try:
        drop_empty(writer)
        if expand is not None and not writer.wrote:
            expand(writer)
    except (ValueError, KeyError, IndexError) as error:
        raise UnsupportedError(f"cannot compile {describe(node)}: {first_line(error)}") from error
    return writer if writer.wrote else node


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.output, *graph.input):
        types[value.name] = value.type.tensor_type.elem_type
    return types


def _with_nodes(
    model: onnx.ModelProto, written: Iterable[Writer | onnx.NodeProto]
) -> onnx.ModelProto:
    """Return the model with these nodes. The entries of tensors stay, because some remain."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for each in written:
        if isinstance(each, Writer):
            result.graph.node.extend(each.nodes)
            result.graph.initializer.extend(each.tensors)
        else:
            result.graph.node.append(each)
    return result
