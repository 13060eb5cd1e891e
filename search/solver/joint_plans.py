"""Solve several layout graphs jointly, where choices need things that are paid for only once.

Plans of one network for several shapes read the same weights. Each way to run a convolution needs
them in the packing of its kernel, and each packing is kept once, however many plans need it. The
search minimises the weighted cost of all plans, plus the prices of all packings that some plan
needs.

A lower bound comes from dividing each price among the nodes that may need the thing. The shares add
up to the price, so the nodes that need the thing pay at most the price. Hence the graphs, solved
separately with their shares, cost no more than the best joint plans (Lagrangian decomposition).
Shares then move to the nodes that do need the thing, which raises the bound (subgradient steps).

The same solutions give plans. These improve by solving one graph after the other again, with the
needs of the other graphs free, as long as that helps.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np

from neocpu.search.solver.layout_graph import LayoutGraph, Vector
from neocpu.search.solver.plan import Plan, SearchLimits, solve

Need = TypeVar("Need", bound=Hashable)
Shares: TypeAlias = list[dict[int, Vector]]
"""A share of the prices for each graph, by its nodes that have ways: one for each need."""

ROUNDS: Final = 24
"""The number of times that prices are divided anew."""
CLOSE: Final = 1e-4
"""A gap, as a share of the cost, that is not worth another round."""


@dataclass(frozen=True, slots=True)
class Way(Generic[Need]):
    """One way to carry out a choice: its cost, and its need."""

    cost: float
    need: Need


@dataclass(frozen=True, slots=True, eq=False)
class SharingGraph(Generic[Need]):
    """A graph with choices that can be made in several ways."""

    graph: LayoutGraph
    # Ways of some nodes: at least one for each choice, in place of the node's costs.
    ways: Mapping[int, tuple[tuple[Way[Need], ...], ...]]
    weight: float = 1.0  # factor of its cost, above 0


@dataclass(frozen=True, slots=True)
class JointPlan(Generic[Need]):
    """Plans for all graphs."""

    plans: tuple[Plan, ...]  # one plan for each graph. Its cost is without prices.
    ways: tuple[Mapping[int, Way[Need]], ...]  # each graph's ways, for its nodes that have some
    cost: float  # sum of all plans' costs by their weights, and of the prices of all needs
    lower_bound: float  # cost that no plans are below
    solved: int  # the number of times that a graph was solved

    @property
    def gap(self) -> float:
        """The largest possible distance of the cost from the best, as a share of it."""
        return max(0.0, self.cost - self.lower_bound) / abs(self.cost) if self.cost else 0.0


class _Node(Generic[Need]):
    """The ways of one node in arrays: their choices, costs, and positions among its needs."""

    def __init__(self, ways: Sequence[Sequence[Way[Need]]]) -> None:
        flat = [(choice, way) for choice, some in enumerate(ways) for way in some]
        self.ways = [way for _, way in flat]
        self.needs = list(dict.fromkeys(way.need for way in self.ways))
        position = {need: i for i, need in enumerate(self.needs)}
        self.choices = np.array([choice for choice, _ in flat])
        self.costs = np.array([way.cost for way in self.ways])
        self.positions = np.array([position[way.need] for way in self.ways])
        self.count = len(ways)

    def priced(self, prices: Vector) -> Vector:
        found = np.full(self.count, np.inf)
        np.minimum.at(found, self.choices, self.costs + prices[self.positions])
        return found

    def cheapest(self, choice: int, prices: Vector) -> int:
        costs = self.costs + prices[self.positions]
        return int(np.where(self.choices == choice, costs, np.inf).argmin())


@dataclass(frozen=True, slots=True)
class _Solution(Generic[Need]):
    """A plan of one graph, the ways of its nodes, and a lower bound on any plan's priced cost."""

    plan: Plan
    ways: Mapping[int, Way[Need]]
    bound: float

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset(way.need for way in self.ways.values())


def solve_jointly(
    graphs: Sequence[SharingGraph[Need]],
    prices: Mapping[Need, float],
    limits: SearchLimits | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> JointPlan[Need]:
    """Choose ways for all graphs at least total cost, within limits of time and memory. The
    ``prices`` of needs are 0 or more. Each graph is solved at least twice, however long that takes.
    """
    limits = limits or SearchLimits()
    end = clock() + limits.seconds
    search = _Search(graphs, prices, limits)
    shares = search.equal_shares()
    for _ in range(ROUNDS):
        found = search.solve_shared(shares)
        search.descend(found, lambda: clock() >= end)
        if clock() >= end or search.gap <= CLOSE:
            break
        shares = search.moved(shares, found)
    best = search.best
    return JointPlan(
        tuple(one.plan for one in best),
        tuple(one.ways for one in best),
        search.cost,
        min(search.bound, search.cost),
        search.solved,
    )


def _users(nodes: Iterable[_Node[Need]]) -> Counter[Need]:
    return Counter(need for node in nodes for need in node.needs)


class _Search(Generic[Need]):
    def __init__(
        self,
        graphs: Sequence[SharingGraph[Need]],
        prices: Mapping[Need, float],
        limits: SearchLimits,
    ) -> None:
        self.graphs, self.prices, self.limits = graphs, prices, limits
        self.nodes = [{u: _Node(ways) for u, ways in one.ways.items()} for one in graphs]
        self.best: list[_Solution[Need]] = []
        self.cost, self.bound = math.inf, -math.inf
        self.solved = 0
        self._users = _users(node for nodes in self.nodes for node in nodes.values())

    @property
    def gap(self) -> float:
        return (self.cost - self.bound) / abs(self.cost) if self.cost else 0.0

    def equal_shares(self) -> Shares:
        return [
            {u: np.array([self.prices[n] / self._users[n] for n in node.needs]) for u, node in each}
            for each in (nodes.items() for nodes in self.nodes)
        ]

    def solve_shared(self, shares: Shares) -> list[_Solution[Need]]:
        """Solve each graph with its shares; raise the bound."""
        found = [self._solve(i, prices) for i, prices in enumerate(shares)]
        total = math.fsum(
            one.weight * each.bound for one, each in zip(self.graphs, found, strict=True)
        )
        self.bound = max(self.bound, total)
        return found

    def descend(self, found: Sequence[_Solution[Need]], is_over: Callable[[], bool]) -> None:
        """Solve one graph after another again, others' needs free, while that helps; each once."""
        current, cost = list(found), self._total(found)
        since = 0
        for turn in range(len(current) * ROUNDS):
            index = turn % len(current)
            if since == len(current) or (turn >= len(current) and is_over()):
                break
            others = [one.needs for i, one in enumerate(current) if i != index]
            again = [*current]
            again[index] = self._solve(index, self._prices(index, frozenset().union(*others)))
            total = self._total(again)
            since = 0 if total < cost else since + 1
            if total < cost:
                current, cost = again, total
        if cost < self.cost or not self.best:
            self.best, self.cost = current, cost

    def moved(self, shares: Shares, found: Sequence[_Solution[Need]]) -> Shares:
        needing = Counter(way.need for one in found for way in one.ways.values())
        slopes = [
            {
                u: np.array(
                    [
                        (one.ways[u].need == need) - needing[need] / self._users[need]
                        for need in node.needs
                    ]
                )
                for u, node in nodes.items()
            }
            for nodes, one in zip(self.nodes, found, strict=True)
        ]
        square = math.fsum(float(s @ s) for each in slopes for s in each.values())
        if square == 0.0:
            return shares
        step = (self.cost - self.bound) / square
        moved = [
            {u: np.maximum(0.0, share + step * slope[u]) for u, share in each.items()}
            for each, slope in zip(shares, slopes, strict=True)
        ]
        return self._normalised(moved)

    def _normalised(self, shares: Shares) -> Shares:
        sums: dict[Need, float] = {}
        for nodes, each in zip(self.nodes, shares, strict=True):
            for u, node in nodes.items():
                for need, share in zip(node.needs, each[u], strict=True):
                    sums[need] = sums.get(need, 0.0) + float(share)
        return [
            {
                u: np.array(
                    [
                        share * self.prices[need] / sums[need]
                        if sums[need] > 0
                        else self.prices[need] / self._users[need]
                        for need, share in zip(node.needs, each[u], strict=True)
                    ]
                )
                for u, node in nodes.items()
            }
            for nodes, each in zip(self.nodes, shares, strict=True)
        ]

    def _prices(self, index: int, free: frozenset[Need]) -> dict[int, Vector]:
        """Return the prices that a graph's nodes pay if other graphs pay for ``free``."""
        nodes = self.nodes[index]
        own = _users(nodes.values())
        return {
            u: np.array([0.0 if n in free else self.prices[n] / own[n] for n in node.needs])
            for u, node in nodes.items()
        }

    def _solve(self, index: int, prices: Mapping[int, Vector]) -> _Solution[Need]:
        one, nodes = self.graphs[index], self.nodes[index]
        scaled = {u: each / one.weight for u, each in prices.items()}
        priced = tuple(
            replace(node, costs=tuple(nodes[u].priced(scaled[u]).tolist())) if u in nodes else node
            for u, node in enumerate(one.graph.nodes)
        )
        plan = solve(LayoutGraph(priced, one.graph.edges), "auto", self.limits)
        self.solved += 1
        ways = {
            u: node.ways[node.cheapest(plan.choices[u], scaled[u])] for u, node in nodes.items()
        }
        paid = math.fsum(priced[u].costs[plan.choices[u]] - way.cost for u, way in ways.items())
        own = replace(plan, cost=plan.cost - paid, lower_bound=plan.lower_bound - paid)
        return _Solution(own, ways, plan.lower_bound)

    def _total(self, solutions: Sequence[_Solution[Need]]) -> float:
        needs = frozenset[Need]().union(*(one.needs for one in solutions))
        costs = (g.weight * one.plan.cost for g, one in zip(self.graphs, solutions, strict=True))
        return math.fsum((*costs, *(self.prices[need] for need in needs)))
