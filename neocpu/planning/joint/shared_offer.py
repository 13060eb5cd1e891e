"""The choices of a plan that shares packed weights with others: every packing is a choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from neocpu.planning.choice import Choice
from neocpu.planning.optimisation_levels import Offer
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.together import Need, SharingGraph, Way


@dataclass(frozen=True, slots=True, eq=False)
class SharedOffer(Generic[Need]):
    """The packings that all plans need, and their prices."""

    needing: Counter[Need]  # the number of operators in all plans that need each packing
    prices: Mapping[Need, float]  # price of each packing in the minimised cost
    byte_price: float  # price of each byte that a plan reads, whoever else reads it

    def of(
        self,
        sharing: SharingGraph[Need],
        choices: Sequence[tuple[Choice, ...]],
        packed: Mapping[int, Sequence[Mapping[Need, Choice]]],
        selected: Sequence[int],
        needs: Mapping[int, Way[Need]],
    ) -> tuple[Offer, tuple[int, ...]]:
        """Return the choices of one of the plans, and those that it selected.

        A packing that others need anyway costs nothing more. `choices` are parallel to those of the
        nodes. `packed` has the packings of each node that has several, for each choice. `selected`
        and `needs` are the plan's choices and packings.
        """
        every, paid, found = [*choices], {}, [*selected]
        costs: dict[int, list[float]] = {}
        rows: dict[int, list[int]] = {}
        for node, some in packed.items():
            own = needs[node].need
            ways = [(i, way) for i, each in enumerate(sharing.ways[node]) for way in each]
            rows[node] = [i for i, _ in ways]
            paid[node] = [
                0.0
                if self.needing[way.need] > (way.need == own)
                else self.prices[way.need] / sharing.weight
                for _, way in ways
            ]
            costs[node] = [way.cost + more for (_, way), more in zip(ways, paid[node], strict=True)]
            every[node] = tuple(some[i][way.need] for i, way in ways)
            found[node] = ways.index((selected[node], needs[node]))
        graph = _spread(sharing.graph, every, rows, costs)
        return Offer(every, graph, self.byte_price, paid), tuple(found)


def _spread(
    graph: LayoutGraph,
    choices: Sequence[tuple[Choice, ...]],
    rows: Mapping[int, Sequence[int]],
    costs: Mapping[int, Sequence[float]],
) -> LayoutGraph:
    """Return a graph in which some nodes have a choice for each packing. `rows` has the choice of
    the given graph that each new choice comes from, and `costs` its cost.
    """
    nodes = tuple(
        replace(node, choices=tuple(map(str, choices[i])), costs=tuple(costs[i]))
        if i in rows
        else node
        for i, node in enumerate(graph.nodes)
    )
    edges = []
    for edge in graph.edges:
        source, target = (
            rows.get(end, range(len(graph.nodes[end].choices)))
            for end in (edge.source, edge.target)
        )
        edges.append(replace(edge, costs=edge.costs[np.ix_(source, target)]))
    return LayoutGraph(nodes, tuple(edges))
