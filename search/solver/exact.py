"""Exact global search: reductions, bucket elimination, and branch and bound where tables get large.

The least lower bound among the subproblems still open bounds the whole: stopping early leaves the
best plan found and a proven gap. The subproblem of that bound is split next, to raise it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from neocpu.search.solver.bounds import lower_bound
from neocpu.search.solver.elimination import best_order, eliminate
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.reductions import Problem, complete_greedily

# A subproblem whose bound is this close to the best plan cannot hold a better one worth having.
TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class ExactResult:
    """The best plan found, a lower bound on all plans, and what it took."""

    choices: tuple[int, ...]
    lower_bound: float
    bounded: int  # subproblems that were bounded, being too large to solve at once


# Nodes, each with the position of its choice among those it still had when it was decided.
_Decisions: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Open:
    """A subproblem that may hold a better plan: none in it costs less than ``bound``.

    Only the decisions that lead to it are kept, so thousands take no memory. Making them again
    takes far less time than a bound.
    """

    decisions: _Decisions
    bound: float


def solve_exactly(graph: LayoutGraph, max_bytes: int, expired: Callable[[], bool]) -> ExactResult:
    """Find the cheapest plan, or once the time is up the best so far and a bound. `max_bytes`
    limits the elimination's tables.
    """
    search = _Search(graph, max_bytes, expired)
    search.consider((), search.root.copy())
    while search.open and not expired():
        search.branch()
    return search.result()


class _Search:
    def __init__(self, graph: LayoutGraph, max_bytes: int, expired: Callable[[], bool]) -> None:
        self.graph = graph
        self.whole = Problem(graph)
        self.root = self.whole.copy()
        self.root.reduce_fully(expired)
        self.max_bytes = max_bytes
        self.expired = expired
        self.open: list[_Open] = []
        self.best: tuple[int, ...] = ()
        self.cost = math.inf
        self.bounded = 0

    def consider(self, decisions: _Decisions, problem: Problem) -> None:
        """Solve a reduced ``problem`` at once if its tables fit, else bound it and keep it open."""
        order = best_order(problem, self.max_bytes, self.expired)
        if order is not None and eliminate(problem, order, self.expired):
            self._offer(problem.plan())
            return
        if math.isinf(problem.offset):  # a dead end: no finite plan down here
            self._offer(complete_greedily(problem)[0])
            return
        self.bounded += 1
        bound = lower_bound(problem, self.expired)
        if bound.value >= self._cutoff():
            return
        self.open.append(_Open(decisions, bound.value))
        if self.best and self.expired():
            return
        if bound.positions:
            rounded = problem.copy()
            for node, position in bound.positions.items():
                rounded.fix(node, position)
            self._offer(self._improve(rounded.plan()))
        self._offer(self._improve(complete_greedily(problem)[0]))

    def branch(self) -> None:
        """Split the open subproblem of the least bound by its most constrained node's choices.

        It stays open until all its parts have been considered.
        """
        parent = min(self.open, key=lambda one: one.bound)
        problem = self._decided(self.root, parent.decisions)
        if problem is None:
            return
        node = max(problem.pairs, key=lambda u: (len(problem.pairs[u]), -len(problem.alive[u]), -u))
        for position in range(len(problem.alive[node])):
            part = self._decided(problem, ((node, position),))
            if part is None:
                return
            self.consider((*parent.decisions, (node, position)), part)
        self.open = [one for one in self.open if one is not parent]

    def _decided(self, problem: Problem, decisions: _Decisions) -> Problem | None:
        rest = problem.copy()
        for node, position in decisions:
            rest.fix(node, position)
            rest.reduce_fully(self.expired)
            if self.expired():
                return None
        return rest

    def result(self) -> ExactResult:
        bound = min((one.bound for one in self.open), default=self.cost)
        return ExactResult(self.best, min(bound, self.cost), self.bounded)

    def _cutoff(self) -> float:
        return self.cost - TOLERANCE * abs(self.cost) if math.isfinite(self.cost) else self.cost

    def _offer(self, choices: tuple[int, ...]) -> None:
        cost = self.graph.cost(choices)
        if not self.best or cost < self.cost:
            self.best, self.cost = choices, cost
            self.open = [one for one in self.open if one.bound < self._cutoff()]

    def _improve(self, choices: tuple[int, ...]) -> tuple[int, ...]:
        """Change one node at a time to its best choice, until none helps."""
        problem = self.whole
        plan = list(choices)
        queue = dict.fromkeys(problem.unary)
        while queue and not self.expired():
            node = next(iter(queue))
            del queue[node]
            costs = problem.unary[node]
            for v, matrix in problem.pairs[node].items():
                costs = costs + matrix[:, plan[v]]
            choice = int(costs.argmin())
            least, own = float(costs[choice]), float(costs[plan[node]])
            if own - least > TOLERANCE * abs(least):
                plan[node] = choice
                queue.update(dict.fromkeys(problem.pairs[node]))
        return tuple(plan)
