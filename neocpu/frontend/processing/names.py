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
        for inner in graphs_of(node):
            rename(inner, name, other, made=made)
    if made:
        for value in graph.value_info:
            if value.name == name:
                value.name = other


def _replace(names: list[str], name: str, other: str) -> None:
    for place, each in enumerate(names):
        if each == name:
            names[place] = other
