"""An artifact's program as a graph: its calls, and the tensors that pass between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.plan.kernels import OTHER, TRANSFORM
from neocpu.plan.pages.arena_picture import Contents, owner, place_of, uses_of
from neocpu.runtime.described_calls import describe_calls, operators_in_turn
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import times_of_calls

INPUT, OUTPUT = "input", "output"
JOIN: Final = "join"  # tensors side by side that are read as one without a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A call of a kernel, an input, an output or a join."""

    name: str  # name of the plan's operator, of the kernel or of the tensor
    kind: str  # kind of the operator, or `TRANSFORM`, `OTHER`, `INPUT`, `OUTPUT` or `JOIN`
    kernel: str | None = None
    op: int | None = None  # position in the plan's list; None if it is not there
    transform: int | None = None
    times: int = 1  # number of times that a run makes the call
    weights: int = 0  # bytes of the weights it reads
    others: int = 0  # bytes of the other tensors it reads or writes
    predicted_us: float | None = None  # of all times; None if the plan has no prediction
    makes: tuple[str, ...] = ()  # tensors of the model that it completes


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that one node writes and another reads."""

    source: int  # position; neither node is a transform between two others
    destination: int
    through: tuple[int, ...] = ()  # the transforms on the way


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> JsonObject:
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [[edge.source, edge.destination, list(edge.through)] for edge in self.edges],
        }


class Links:
    """Links from writers to readers, with a node for each group of tensors that is read as one."""

    def __init__(self, nodes: int) -> None:
        self.joins: list[Node] = []
        self.found: set[tuple[int, int]] = set()
        self._nodes = nodes
        self._parts: dict[frozenset[int], int] = {}

    def add(self, writers: Sequence[int], reader: int) -> None:
        """Add the writers of the parts of a tensor that a node reads."""
        parts = frozenset(writers)
        if len(parts) > 1:
            parts = frozenset([self._parts[parts] if parts in self._parts else self._join(parts)])
        self.found.update((part, reader) for part in parts)

    def _join(self, parts: frozenset[int]) -> int:
        """Return the node of a new join, which reads a former join if that is a part of it."""
        number = self._nodes + len(self.joins)
        self.joins.append(Node(name=f"join_{len(self.joins)}", kind=JOIN))
        former = max((known for known in self._parts if known < parts), key=len, default=None)
        rest = parts - (former or frozenset())
        self._parts[parts] = number
        self.found.update((part, number) for part in rest)
        if former is not None:
            self.found.add((self._parts[former], number))
        return number


def program_graph(header: ArtifactHeader) -> ProgramGraph:
    """Return the graph of an artifact's program, or of one signature of a set.

    Raises ArithmeticError, LookupError, ValueError: its plan, which anybody wrote, does not fit.
    """
    calls = tuple(_calls(header))
    inputs = tuple(Node(name=spec.name, kind=INPUT) for spec in header.inputs)
    outputs = tuple(Node(name=spec.name, kind=OUTPUT) for spec in header.outputs)
    links = Links(len(calls) + len(inputs) + len(outputs))
    _follow(header, links)
    nodes = (*calls, *inputs, *outputs, *links.joins)
    return ProgramGraph(nodes, tuple(_edges(calls, links.found)))


def _calls(header: ArtifactHeader) -> Iterator[Node]:
    plan = header.plan
    positions = {id(op): i for i, op in enumerate(plan.ops)}
    transforms = {one.kernel: i for i, one in enumerate(plan.transforms)}
    costs = {one.name: one.cost_us / one.calls for one in plan.kernels}
    makes: dict[int, list[str]] = defaultdict(list)
    for value in plan.values:
        makes[value.calls - 1].append(value.name)
    operators = operators_in_turn(plan.ops, (kernel for kernel, _ in header.calls))
    times = times_of_calls(len(header.calls), header.repeats)
    for i, (call, operator) in enumerate(zip(describe_calls(header), operators, strict=True)):
        transform = transforms.get(call.kernel) if operator is None else None
        other = OTHER if transform is None else TRANSFORM
        cost = costs.get(call.kernel)
        yield Node(
            name=call.name,
            kind=other if operator is None else operator.kind,
            kernel=call.kernel,
            op=positions.get(id(operator)),
            transform=transform,
            times=times[i],
            weights=call.weights,
            others=call.others,
            predicted_us=None if cost is None else cost * times[i],
            makes=tuple(makes[i]),
        )


def _follow(header: ArtifactHeader, links: Links) -> None:
    calls = len(header.calls)
    contents = Contents()

    def read(tensor: int, reader: int) -> None:
        if tensor < len(header.inputs):
            links.add([calls + tensor], reader)
        elif place := place_of(header, tensor):
            links.add(contents.writers(place), reader)

    for i, use in enumerate(uses_of(header, contents)):
        for tensor in use.reads:
            read(tensor, i)
        for place in use.writes:
            contents.write(place, i)
    for i, tensor in enumerate(header.returns[: len(header.outputs)]):
        read(owner(header, tensor), calls + len(header.inputs) + i)


def _edges(nodes: tuple[Node, ...], links: Iterable[tuple[int, int]]) -> Iterator[Edge]:
    """Yield the edges between nodes; transforms become stops on the way."""
    sources: Mapping[int, list[int]] = defaultdict(list)
    readers: Mapping[int, list[int]] = defaultdict(list)
    for source, destination in sorted(links):
        sources[destination].append(source)
        readers[source].append(destination)
    passed = {
        i
        for i, node in enumerate(nodes)
        if node.kind == TRANSFORM and len(sources[i]) == 1 and readers[i]
    }
    for source in sorted(set(readers) - passed):
        waiting: list[tuple[int, tuple[int, ...]]] = [(reader, ()) for reader in readers[source]]
        while waiting:
            reader, through = waiting.pop()
            if reader in passed:
                further = (*through, reader)
                waiting += [(one, further) for one in readers[reader] if one not in further]
            else:
                yield Edge(source, reader, through)
