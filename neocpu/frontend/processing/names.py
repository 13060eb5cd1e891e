"""Names of values in a graph that nodes are added to."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def free_name(graph: onnx.GraphProto, name: str) -> str:
    """Return a name that no value of the graph has, like ``name``."""
    taken = set(_names(graph))
    while name in taken:
        name += "_"
    return name


def rename(graph: onnx.GraphProto, name: str, other: str, *, made: bool = True) -> None:
    """Call a value otherwise, in place, wherever a node reads it, those of inner graphs too.

    Parameters
    ----------
    made : bool
        Whether also where a node or the graph makes it.
    """
    for node in graph.node:
        _replace(node.input, name, other)
        if made:
            _replace(node.output, name, other)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                rename(inner, name, other, made=made)
    if made:
        for value in graph.value_info:
            if value.name == name:
                value.name = other


def _replace(names: list[str], name: str, other: str) -> None:
    for place, each in enumerate(names):
        if each == name:
            names[place] = other


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _names(inner)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
    for tensor in graph.initializer:
        yield tensor.name
