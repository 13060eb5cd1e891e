"""What an artifact's program is as a graph: its calls, and who reads what another writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from neocpu.runtime.described_calls import describe_calls, operators_in_turn
from neocpu.runtime.header import ArtifactHeader, times_of_calls

INPUT, OUTPUT, TRANSFORM, OTHER = "input", "output", "transform", "other"


@dataclass(frozen=True, slots=True)
class Node:
    """A call of a kernel, an input or an output.

    Attributes
    ----------
    name : str
        Of the plan's operator, the kernel or the tensor.
    kind : str
        The operator's, or `TRANSFORM`, `OTHER`, `INPUT` or `OUTPUT`.
    kernel : str or None
    op, transform : int or None
        Position in the plan's list, where it has it.
    times : int
        How often a run makes the call.
    weights, others : int
        Bytes of the weights it reads, and of the other tensors it reads or writes.
    predicted_us : float or None
        Of all times; None if the plan does not say.
    makes : tuple of str
        Tensors of the model that are there after it.
    """

    name: str
    kind: str
    kernel: str | None = None
    op: int | None = None
    transform: int | None = None
    times: int = 1
    weights: int = 0
    others: int = 0
    predicted_us: float | None = None
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """That a node reads what another wrote.

    Attributes
    ----------
    source, destination : int
        Positions of nodes, none of which is a transform between two others.
    through : tuple of int
        The transforms on the way.
    """

    source: int
    destination: int
    through: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """Nodes, calls first and in calling order, and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [[edge.source, edge.destination, list(edge.through)] for edge in self.edges],
        }


def program_graph(header: ArtifactHeader) -> ProgramGraph:
    """Return the graph of an artifact's program, or of one signature's of a set.

    Raises
    ------
    KeyError, TypeError, ValueError
        If its plan is none: anybody may have written it.
    """
    calls = tuple(_calls(header))
    inputs = tuple(Node(spec.name, INPUT) for spec in header.inputs)
    outputs = tuple(Node(spec.name, OUTPUT) for spec in header.outputs)
    links = set(_links(header))
    return ProgramGraph((*calls, *inputs, *outputs), tuple(_edges(calls, links)))


def _calls(header: ArtifactHeader) -> Iterator[Node]:
    plan = header.plan
    positions = {id(op): i for i, op in enumerate(plan["ops"])}
    transforms = {one.get("kernel"): i for i, one in enumerate(plan["transforms"])}
    costs = {one["kernel"]: float(one["cost_us"]) / one["calls"] for one in plan.get("kernels", ())}
    makes: dict[int, list[str]] = defaultdict(list)
    for name, calls, *_ in plan.get("values", ()):
        makes[calls - 1].append(str(name))
    operators = operators_in_turn(plan, (kernel for kernel, _ in header.calls))
    times = times_of_calls(len(header.calls), header.repeats)
    for i, (call, operator) in enumerate(zip(describe_calls(header), operators, strict=True)):
        transform = None if operator else transforms.get(call.kernel)
        other = OTHER if transform is None else TRANSFORM
        cost = costs.get(call.kernel)
        yield Node(
            call.name,
            str(operator.get("kind", other)),
            call.kernel,
            positions.get(id(operator)),
            transform,
            times[i],
            call.weights,
            call.others,
            None if cost is None else cost * times[i],
            tuple(makes[i]),
        )


def _links(header: ArtifactHeader) -> Iterator[tuple[int, int]]:
    """Yield which node reads what which other wrote."""
    calls = len(header.calls)
    after_inputs = calls + len(header.inputs)
    writers = {i: calls + i for i in range(len(header.inputs))}
    for i, (_, tensors) in enumerate(header.calls):
        owners = [owner(header, tensor) for tensor in tensors]
        for tensor in owners[:-1]:
            if (writer := writers.get(tensor)) is not None:
                yield writer, i
        # The last one is a result, and so is whatever nobody wrote before.
        known = range(len(header.inputs) + len(header.weights))
        for tensor in {*owners[-1:], *(each for each in owners if each not in writers)}:
            if tensor not in known:
                writers[tensor] = i
    for i, tensor in enumerate(header.returns[: len(header.outputs)]):
        if (writer := writers.get(owner(header, tensor))) is not None:
            yield writer, after_inputs + i


def owner(header: ArtifactHeader, tensor: int) -> int:
    """Return the number of the tensor that one is a part of, or its own."""
    first = len(header.inputs) + len(header.weights) + len(header.activations)
    return header.slices[tensor - first].tensor if tensor >= first else tensor


def _edges(nodes: tuple[Node, ...], links: Iterable[tuple[int, int]]) -> Iterator[Edge]:
    """Yield the links between nodes, with transforms as what lies on the way."""
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
