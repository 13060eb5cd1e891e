"""Names of values in a graph that nodes are added to."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from neocpu.frontend.onnx_graph.subgraphs import all_names, graphs_of


class FreshNames:
    """Names for what is written into a graph: each is new, and is taken once it is given.

    Parameters
    ----------
    taken : iterable of str
        Names that the graph has.
    between : str
        The text between a wish that is taken and the number after it.
    first : int
        The first such number.
    """

    def __init__(self, taken: Iterable[str], *, between: str = "_", first: int = 2) -> None:
        self._taken = {"", *taken}
        self._between = between
        self._first = first
        self._last: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """Return ``wish``, with a number if that is taken."""
        name, number = wish, self._last.get(wish, self._first - 1)
        while name in self._taken:
            number += 1
            name = f"{wish}{self._between}{number}"
        self._last[wish] = number
        self._taken.add(name)
        return name

    def prefix(self, wish: str) -> str:
        """Return a text like ``wish`` that no name begins with."""
        alike = [name for name in self._taken if name.startswith(wish)]
        while any(name.startswith(wish) for name in alike):
            wish += "_"
        return wish


def fresh_names(graph: onnx.GraphProto) -> FreshNames:
    """Return names that no value has, neither of a graph nor of those in its nodes."""
    return FreshNames(all_names(graph))


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
