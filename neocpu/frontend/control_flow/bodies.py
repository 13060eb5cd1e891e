"""Copy the nodes of an inner graph, such as a branch or a loop's body, into the outer graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx

from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.onnx_graph.subgraphs import all_nodes, graphs_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS

Instance: TypeAlias = tuple[list[onnx.NodeProto], tuple[str, ...]]


class Body:
    """An inner graph without constants, from which copies can be made."""

    def __init__(self, graph: onnx.GraphProto, names: FreshNames) -> None:
        self._graph = graph
        self._names = names

    @property
    def node_count(self) -> int:
        """The number of nodes of a copy, including those of inner graphs."""
        return sum(1 for _ in all_nodes(self._graph.node))

    @property
    def output_count(self) -> int:
        return len(self._graph.output)

    def rank(self, place: int) -> int:
        return len(self._graph.input[place].type.tensor_type.shape.dim)

    def returns_input(self, output: int, place: int) -> bool:
        """Return whether an output always is a certain input."""
        return self._origin(output) == str(self._graph.input[place].name)

    def outer_value(self, output: int) -> str | None:
        """Return the outer value that an output always is; None if there is none."""
        name = self._origin(output)
        return None if any(each.name == name for each in self._graph.input) else name

    def _origin(self, output: int) -> str | None:
        makers = {name: node for node in self._graph.node for name in node.output}
        name = self._graph.output[output].name
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].input[0]
        return None if name in makers else name

    def instance(self, inputs: Sequence[str], label: str) -> Instance:
        """Return the nodes and outputs of a copy; ``label`` is the prefix of its values' names."""
        names = dict(zip((value.name for value in self._graph.input), inputs, strict=True))
        nodes = []
        for node in self._graph.node:
            names |= {each: self._names.fresh(f"{label}/{each}") for each in node.output if each}
            nodes.append(_renamed(node, names, label))
        return nodes, tuple(names.get(value.name, value.name) for value in self._graph.output)


def hoist_constants(graph: onnx.GraphProto, names: FreshNames) -> None:
    """Move the constants of all inner graphs to the outer one, in place, under unique names."""
    constants: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in graphs_of(node):
            _hoist(inner, graph, constants, names)
    nodes = [*constants, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _hoist(
    inner: onnx.GraphProto,
    outer: onnx.GraphProto,
    constants: list[onnx.NodeProto],
    names: FreshNames,
) -> None:
    moved = {tensor.name: names.fresh(tensor.name) for tensor in inner.initializer}
    for tensor in inner.initializer:
        outer.initializer.add().CopyFrom(tensor)
        outer.initializer[-1].name = moved[tensor.name]
    del inner.initializer[:]
    kept = []
    for node in inner.node:
        if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS:
            moved[node.output[0]] = names.fresh(node.output[0])
            constants.append(_renamed(node, moved))
        else:
            kept.append(_renamed(node, moved))
    del inner.node[:]
    inner.node.extend(kept)
    for value in inner.output:
        if value.name in moved:  # optimisers drop outputs that no inner node makes
            inner.node.append(onnx.helper.make_node("Identity", [moved[value.name]], [value.name]))
    for node in inner.node:
        for graph in graphs_of(node):
            _hoist(graph, outer, constants, names)


def forget_inner_shapes(graph: onnx.GraphProto) -> None:
    """Drop the shapes that inner graphs declare, except those of a Loop's counter and condition."""
    for node in graph.node:
        own = 2 if node.op_type == "Loop" else 0
        for inner in graphs_of(node):
            del inner.value_info[:]
            for value in (*inner.input[own:], *inner.output):
                if value.type.HasField("tensor_type"):
                    value.type.tensor_type.ClearField("shape")
            forget_inner_shapes(inner)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, and those that its inner graphs name."""
    yield from node.input
    for graph in graphs_of(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from reads(inner)


def free_names(
    nodes: Iterable[onnx.NodeProto], outputs: Iterable[str], own: Iterable[str]
) -> Iterator[str]:
    """Yield the values that nodes or outputs read, other than ``own`` and the nodes' outputs."""
    made = {"", *own}
    for node in nodes:
        yield from (name for name in node.input if name not in made)
        for graph in graphs_of(node):
            inner = [*made, *(v.name for v in graph.input), *(t.name for t in graph.initializer)]
            yield from free_names(graph.node, (value.name for value in graph.output), inner)
        made.update(node.output)
    yield from (name for name in outputs if name not in made)


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return the nodes that outputs depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(reads(node))
    return kept[::-1]


def _renamed(
    node: onnx.NodeProto, names: Mapping[str, str], label: str | None = None
) -> onnx.NodeProto:
    new = onnx.NodeProto()
    new.CopyFrom(node)
    new.input[:] = [names.get(name, name) for name in node.input]
    new.output[:] = [names.get(name, name) for name in node.output]
    if label is not None and node.name:
        new.name = f"{label}/{node.name}"
    for graph in graphs_of(new):
        _rename_captured(graph, names)
    return new


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the outer values that an inner graph reads, in place; its own names hide those."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    captured = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        node.input[:] = [captured.get(name, name) for name in node.input]
        for inner in graphs_of(node):
            _rename_captured(inner, captured)
    for value in graph.output:
        value.name = captured.get(value.name, value.name)
