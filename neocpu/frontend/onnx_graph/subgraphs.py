"""All nodes and names of a model, including those of branches, loops and functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

_GRAPH, _GRAPHS = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from all_nodes(graph.node)


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the inner graphs of a node: the branches of an If, or the body of a Loop or Scan."""
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            found.append(attribute.g)
        elif attribute.type == _GRAPHS:
            found += attribute.graphs
    return found


def all_names(graph: onnx.GraphProto) -> Iterator[str]:
    for named in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        yield named.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        for inner in graphs_of(node):
            yield from all_names(inner)


def model_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a model, also in its functions."""
    yield from all_nodes(model.graph.node)
    for function in model.functions:
        yield from all_nodes(function.node)


def called_operators(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes that do not call a function of the model."""
    local = {(function.domain, function.name) for function in model.functions}
    for node in model_nodes(model):
        if (node.domain, node.op_type) not in local:
            yield node


def has_control_flow(model: onnx.ModelProto) -> bool:
    return any(graphs_of(node) for node in model_nodes(model))
