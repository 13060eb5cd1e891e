"""Names of values in a graph that nodes are added to."""

from __future__ import annotations

import onnx

from neocpu.frontend.subgraphs import all_names, graphs_of


def free_name(graph: onnx.GraphProto, name: str) -> str:
    """Return a name that no value of the graph has, like ``name``."""
    taken = set(all_names(graph))
    while name in taken:
        name += "_"
    return name


def rename(graph: onnx.GraphProto, name: str, other: str, *, made: bool = True) -> None:
    """Call a value otherwise, in place, wherever it is read, by inner graphs too.

    What an inner graph has of the same name, a parameter of a loop, say, is another value.

    Parameters
    ----------
    made : bool
        Whether also where a node or the graph makes it.
    """
    for node in graph.node:
        _replace(node.input, name, other)
        if made:
            _replace(node.output, name, other)
        for inner in graphs_of(node):
            if not _has_its_own(inner, name):
                rename(inner, name, other, made=False)
                for value in inner.output:
                    value.name = other if value.name == name else value.name
    if made:
        for value in graph.value_info:
            if value.name == name:
                value.name = other


def _has_its_own(graph: onnx.GraphProto, name: str) -> bool:
    """Whether a value of this name is made in a graph, and not in one around it."""
    given = (value.name for value in (*graph.input, *graph.initializer))
    return name in given or any(name in node.output for node in graph.node)


def _replace(names: list[str], name: str, other: str) -> None:
    for place, each in enumerate(names):
        if each == name:
            names[place] = other
