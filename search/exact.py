"""Exact global search: reductions, bucket elimination, and branch and bound where tables get large.

Subproblems are taken in the order of their lower bounds, so the least bound among those still open
bounds the whole: stopping early leaves the best plan found and a proven gap.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

from neocpu.search.bounds import lower_bound
from neocpu.search.elimination import best_order, eliminate
from neocpu.search.layout_graph import LayoutGraph
from neocpu.search.pbqp import settle
from neocpu.search.reductions import Problem

# A subproblem whose bound is this close to the best plan cannot hold a better one worth having.
TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class ExactResult:
    """The best plan found, a lower bound on all plans, and how often the search branched."""

    choices: tuple[int, ...]
    lower_bound: float
    branches: int


def solve_exactly(graph: LayoutGraph, max_table: int, max_effort: int | None) -> ExactResult:
    """Find the cheapest plan.

    Parameters
    ----------
    max_table : int
        Entries of the largest elimination table (8 bytes each).
    max_effort : int or None
        Edges to bound, over all subproblems, before settling for the best plan so far; None for no
        limit. A count rather than a time, so that the plan never depends on the machine's load.
    """
    search = _Search(graph, max_table)
    root = Problem(graph)
    root.reduce_fully()
    search.consider(root)
    branches = 0
    while not search.closed() and (max_effort is None or search.effort < max_effort):
        search.branch()
        branches += 1
    return search.result(branches)


class _Search:
    def __init__(self, graph: LayoutGraph, max_table: int) -> None:
        self.graph = graph
        self.max_table = max_table
        self.open: list[tuple[float, int, Problem]] = []
        self.best: tuple[int, ...] = ()
        self.cost = math.inf
        self.effort = 0
        self.ticket = itertools.count()

    def consider(self, problem: Problem) -> None:
        """Solve a reduced ``problem`` at once if its tables fit, else bound it and keep it open."""
        order = best_order(problem)
        if order.fits(self.max_table):
            eliminate(problem, order)
            self._offer(problem.plan())
            return
        if math.isinf(problem.offset):  # a dead end: no finite plan down here
            self._offer(settle(problem)[0])
            return
        self.effort += sum(map(len, problem.pairs.values())) // 2
        bound = lower_bound(problem)
        if bound.value >= self._cutoff():
            return
        rounded = problem.copy()
        for node, position in bound.positions.items():
            rounded.fix(node, position)
        self._offer(self._improve(rounded.plan()))
        self._offer(self._improve(settle(problem.copy())[0]))
        heapq.heappush(self.open, (bound.value, next(self.ticket), problem))

    def branch(self) -> None:
        """Split the open subproblem of the least bound by its most constrained node's choices."""
        _, _, problem = heapq.heappop(self.open)
        node = max(problem.pairs, key=lambda u: (len(problem.pairs[u]), -len(problem.alive[u]), -u))
        for position in range(len(problem.alive[node])):
            child = problem.copy()
            child.fix(node, position)
            child.reduce_fully()
            self.consider(child)

    def closed(self) -> bool:
        """Whether no open subproblem can hold a better plan."""
        return not self.open or self.open[0][0] >= self._cutoff()

    def result(self, branches: int) -> ExactResult:
        bound = self.cost if self.closed() else self.open[0][0]
        return ExactResult(self.best, min(bound, self.cost), branches)

    def _cutoff(self) -> float:
        return self.cost - TOLERANCE * abs(self.cost) if math.isfinite(self.cost) else self.cost

    def _offer(self, choices: tuple[int, ...]) -> None:
        cost = self.graph.cost(choices)
        if not self.best or cost < self.cost:
            self.best, self.cost = choices, cost

    def _improve(self, choices: tuple[int, ...]) -> tuple[int, ...]:
        """Change one node at a time to its best choice, until none helps."""
        problem = Problem(self.graph)
        plan = list(choices)
        queue = dict.fromkeys(problem.unary)
        while queue:
            node = next(iter(queue))
            del queue[node]
            costs = problem.unary[node]
            for v, matrix in problem.pairs[node].items():
                costs = costs + matrix[:, plan[v]]
            choice = int(costs.argmin())
            if costs[choice] < costs[plan[node]] * (1 - TOLERANCE):
                plan[node] = choice
                queue.update(dict.fromkeys(problem.pairs[node]))
        return tuple(plan)
