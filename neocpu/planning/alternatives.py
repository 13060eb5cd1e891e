"""The next best choices of a plan's operators, and the seconds that each would cost the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from neocpu.planning.choice import Choice
from neocpu.planning.optimisation_levels import LayoutPlan, Offer
from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, Matrix, Vector

KEPT: Final = 3
"""The alternatives that are kept of each convolution. Other operators differ in layouts alone, so
that one is enough. An artifact thus explains all choices in few bytes."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run an operator, while all other operators stay as they are."""

    choice: Choice
    transforms: float  # seconds, negative if those around it would take less
    weights: float  # price of its weights in seconds, less that of the chosen way's weights
    more: float  # seconds for kernel, transforms and weights


def alternatives_of(plan: LayoutPlan) -> list[tuple[Alternative, ...]]:
    """Return the next best ways to run each operator of a plan, the best first."""
    offer = plan.offer
    if offer is None or not math.isfinite(plan.search.cost):
        return [() for _ in plan.choices]
    graph, selected = offer.graph, plan.search.choices
    meeting: dict[int, list[LayoutEdge]] = {node: [] for node in range(len(graph.nodes))}
    for edge in graph.edges:
        meeting[edge.source].append(edge)
        meeting[edge.target].append(edge)
    found = (
        sorted(_others(offer, selected, meeting, i), key=attrgetter("more"))
        for i in range(len(plan.choices))
    )
    return [
        tuple(others[: KEPT if choice.scheme else 1])
        for others, choice in zip(found, plan.choices, strict=True)
    ]


def _others(
    offer: Offer, selected: Sequence[int], meeting: Mapping[int, Sequence[LayoutEdge]], node: int
) -> Iterator[Alternative]:
    options, chosen, paid = offer.choices[node], selected[node], offer.paid(node)
    best = options[chosen]
    if len(options) > 1:
        totals = _totals(offer.graph, selected, meeting, node)
        for i, choice in enumerate(options):
            more = float(totals[i] - totals[chosen])
            if i != chosen and math.isfinite(more):
                own, weights = choice.seconds - best.seconds, paid[i] - paid[chosen]
                yield Alternative(choice, more - own - weights, weights, more)
    if (second := best.runner_up) is not None and second.scheme != best.scheme:
        weights = offer.byte_price * (second.weight_bytes - best.weight_bytes)
        yield Alternative(second, 0.0, weights, second.seconds - best.seconds + weights)


def _totals(
    graph: LayoutGraph,
    selected: Sequence[int],
    meeting: Mapping[int, Sequence[LayoutEdge]],
    node: int,
) -> Vector:
    """Return the cost of each choice of a node if others keep theirs, except derived nodes."""
    totals = np.array(graph.nodes[node].costs)
    derived: dict[int, Matrix] = {}
    for edge in meeting[node]:
        other, costs = _from(edge, node)
        if graph.nodes[other].derived:
            derived[other] = derived.get(other, 0.0) + costs
        else:
            totals += costs[:, selected[other]]
    for other, costs in derived.items():
        rest = np.array(graph.nodes[other].costs)
        for edge in meeting[other]:
            third, fixed = _from(edge, other)
            if third != node:
                rest += fixed[:, selected[third]]
        totals += (costs + rest).min(axis=1)
    return totals


def _from(edge: LayoutEdge, node: int) -> tuple[int, Matrix]:
    """Return the other end of an edge, and its costs with a row for each choice of ``node``."""
    forward = edge.source == node
    return (edge.target, edge.costs) if forward else (edge.source, edge.costs.T)
