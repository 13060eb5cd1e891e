"""The global search's problem: choose one layout per node of a graph, at least cost.

A node is anything that may run in several ways (a convolution's schemes, a join's output layouts,
a constant's single one); an edge is a tensor whose layout may have to be transformed on the way.
The cost of a plan is the sum of its nodes' and edges' costs (paper §3.3.2). Nothing here knows of
TVM or of convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LayoutNode:
    """One decision."""

    name: str  # text for people; it need not be unique
    choices: tuple[str, ...]  # names of the alternatives, at least one
    costs: tuple[float, ...]  # cost of each choice, usually seconds; ``inf`` forbids it
    # Whether it decides nothing: its neighbours' choices determine the best one here.
    derived: bool = False

    def __post_init__(self) -> None:
        assert self.choices, f"{self.name}: no choices"
        assert len(self.choices) == len(self.costs), self.name
        assert all(_is_cost(c) for c in self.costs), f"{self.name}: {self.costs}"


@dataclass(frozen=True, slots=True, eq=False)
class LayoutEdge:
    """The joint cost of two nodes' choices: the time of a layout transform between them."""

    # `source`, `target`: indices of the producer and the consumer in `LayoutGraph.nodes`.
    source: int
    target: int
    costs: Matrix  # ``inf`` forbids the pair


@dataclass(frozen=True, slots=True, eq=False)
class LayoutGraph:
    """A directed graph of choices; parallel edges' costs add up, none joins two derived nodes."""

    nodes: tuple[LayoutNode, ...]
    edges: tuple[LayoutEdge, ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            assert edge.source != edge.target, f"self-loop at {edge.source}"
            ends = (self.nodes[edge.source], self.nodes[edge.target])
            assert not (ends[0].derived and ends[1].derived), (ends[0].name, ends[1].name)
            shape = tuple(len(node.choices) for node in ends)
            assert edge.costs.shape == shape, (ends[0].name, ends[1].name, edge.costs.shape, shape)
            assert not np.isnan(edge.costs).any(), (ends[0].name, ends[1].name)
            assert not np.isneginf(edge.costs).any(), (ends[0].name, ends[1].name)

    def cost(self, choices: Sequence[int]) -> float:
        assert len(choices) == len(self.nodes), (len(choices), len(self.nodes))
        own = (node.costs[c] for node, c in zip(self.nodes, choices, strict=True))
        between = (float(e.costs[choices[e.source], choices[e.target]]) for e in self.edges)
        return math.fsum((*own, *between))

    def with_derived(self, choices: Sequence[int]) -> tuple[int, ...]:
        """Return ``choices`` with the cheapest choice, given the others, at every derived node."""
        costs = {i: np.array(node.costs) for i, node in enumerate(self.nodes) if node.derived}
        for edge in self.edges:
            if edge.source in costs:
                costs[edge.source] += edge.costs[:, choices[edge.target]]
            elif edge.target in costs:
                costs[edge.target] += edge.costs[choices[edge.source]]
        return tuple(int(costs[i].argmin()) if i in costs else c for i, c in enumerate(choices))

    def topological_order(self) -> tuple[int, ...]:
        """Return node indices, producers first, lowest free ones first; in cycles the lowest."""
        pending = [0] * len(self.nodes)
        consumers: list[list[int]] = [[] for _ in self.nodes]
        for edge in self.edges:
            pending[edge.target] += 1
            consumers[edge.source].append(edge.target)
        remaining = dict.fromkeys(range(len(self.nodes)))
        ready = [i for i in remaining if pending[i] == 0]
        order: list[int] = []
        while remaining:
            index = ready.pop() if ready else next(iter(remaining))
            if index not in remaining:
                continue
            del remaining[index]
            order.append(index)
            for consumer in reversed(consumers[index]):
                pending[consumer] -= 1
                if pending[consumer] == 0:
                    ready.append(consumer)
        return tuple(order)


def _is_cost(value: float) -> bool:
    return not math.isnan(value) and value != -math.inf
