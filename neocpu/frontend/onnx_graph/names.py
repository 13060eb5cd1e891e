"""New names for values in a graph."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from neocpu.frontend.onnx_graph.subgraphs import all_names, graphs_of


class FreshNames:
    """A source of new names: each returned name is taken from then on.

    ``between`` separates a name that is taken and the number appended to it, ``first`` at first.
    """

    def __init__(self, taken: Iterable[str], *, between: str = "_", first: int = 2) -> None:
        self._taken = {"", *taken}
        self._between = between
        self._first = first
        self._last: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """Return ``wish``, with a number appended if it is taken."""
        name, number = wish, self._last.get(wish, self._first - 1)
        while name in self._taken:
            number += 1
            name = f"{wish}{self._between}{number}"
        self._last[wish] = number
        self._taken.add(name)
        return name

    def prefix(self, wish: str) -> str:
        """Return ``wish``, extended until no name begins with it."""
        similar = [name for name in self._taken if name.startswith(wish)]
        while any(name.startswith(wish) for name in similar):
            wish += "_"
        return wish


def fresh_names(graph: onnx.GraphProto) -> FreshNames:
    """Return a source of names that no value has, neither of a graph nor of its inner graphs."""
    return FreshNames(all_names(graph))


def rename(graph: onnx.GraphProto, name: str, other: str, *, made: bool = True) -> None:
    """Rename a value in place, wherever it is read, also in inner graphs.

    A value of that name that an inner graph defines, such as a loop's parameter, is another one.
    ``made`` renames it also where a node or the graph makes it.
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
    """Return whether a graph defines a value of this name, hiding the outer one."""
    given = (value.name for value in (*graph.input, *graph.initializer))
    return name in given or any(name in node.output for node in graph.node)


def _replace(names: list[str], name: str, other: str) -> None:
    for place, each in enumerate(names):
        if each == name:
            names[place] = other
