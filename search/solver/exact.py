"""Exact global search: reductions, bucket elimination, and branch and bound where tables get large.

The least lower bound among the subproblems still open bounds the whole: stopping early leaves the
best plan found and a proven gap. The subproblem of that bound is split next, to raise it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from neocpu.search.solver.elimination import best_order, eliminate
from neocpu.search.solver.layout_graph import LayoutGraph, Matrix, Vector
from neocpu.search.solver.reductions import Problem, complete_greedily

MAX_SWEEPS = 100
# Stop when two sweeps together raise the bound by less than this share of it.
PROGRESS = 1e-4


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound, and positions that moved costs suggest, if time let all have one."""

    value: float
    positions: dict[int, int]


def lower_bound(problem: Problem, expired: Callable[[], bool] = lambda: False) -> Bound:
    """Return a lower bound on the cost of ``problem``, fixed cost included. `expired` returns
    whether to stop raising the bound, which is valid at any time.
    """
    return _Ascent(problem).run(expired)


class _Ascent:
    """Dual ascent by sequential reweighted message passing (Kolmogorov, TPAMI 2015).

    Cost is moved between nodes and edges without changing what any plan costs, so that the sum of
    all minima, a lower bound, never falls. On trees one sweep makes it exact.
    """

    def __init__(self, problem: Problem) -> None:
        # A finite stand-in for inf keeps inf - inf away. It only relaxes the problem, so the bound
        # stays valid, and it is more than any finite plan can differ by, so little is lost.
        big = 1.0 + 2.0 * _spread(problem)
        self.offset = problem.offset
        self.unary: dict[int, Vector] = {
            u: np.where(np.isinf(costs), big, costs) for u, costs in problem.unary.items()
        }
        self.pairs: dict[int, dict[int, Matrix]] = {u: {} for u in self.unary}
        self.order = tuple(sorted(self.unary))
        for u in self.order:
            for v, costs in problem.pairs[u].items():
                if u < v:
                    matrix = np.where(np.isinf(costs), big, costs)
                    # Two views of one array: each node sees itself as the rows.
                    self.pairs[u][v], self.pairs[v][u] = matrix, matrix.T

    def run(self, expired: Callable[[], bool]) -> Bound:
        best = Bound(-np.inf, {})
        for _ in range(MAX_SWEEPS):
            self._sweep(self.order, expired)
            positions = self._sweep(self.order[::-1], expired)
            value = self._value()
            done = value - best.value <= PROGRESS * abs(value) or expired()
            if value > best.value:
                whole = len(positions) == len(self.order)
                best = Bound(value, positions if whole else best.positions)
            if done:
                break
        return best

    def _sweep(self, order: tuple[int, ...], expired: Callable[[], bool]) -> dict[int, int]:
        positions: dict[int, int] = {}
        for u in order:
            if expired():
                break
            row = self.pairs[u]
            own = self.unary[u]
            for matrix in row.values():
                lowest = matrix.min(axis=1)
                own = own + lowest
                matrix -= lowest[:, None]
            choice = own.copy()
            for v, matrix in row.items():
                if v in positions:
                    choice += matrix[:, positions[v]]
            ahead = [v for v in row if v not in positions]
            share = own / max(len(ahead), len(row) - len(ahead), 1)
            for v in ahead:
                row[v] += share[:, None]
                own = own - share
            self.unary[u] = own
            positions[u] = int(choice.argmin())
        return positions

    def _value(self) -> float:
        total = self.offset + sum(float(costs.min()) for costs in self.unary.values())
        for u in self.order:
            total += sum(float(m.min()) for v, m in self.pairs[u].items() if u < v)
        return total


def _spread(problem: Problem) -> float:
    """Return the most by which two finite plans can differ."""
    arrays = list(problem.unary.values())
    arrays += [m for u, row in problem.pairs.items() for v, m in row.items() if u < v]
    finite = [a[np.isfinite(a)] for a in arrays]
    return float(sum(a.max() - a.min() for a in finite if a.size))


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
    """A subproblem that may hold a better plan, of cost ``bound`` or more.

    It stores only its decisions: they take little memory, and replaying them is faster than
    bounding.
    """

    decisions: _Decisions
    bound: float


def solve_exactly(graph: LayoutGraph, max_bytes: int, expired: Callable[[], bool]) -> ExactResult:
    """Find the cheapest plan, or in time the best and a bound; tables take `max_bytes` at most."""
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
        """Split the open subproblem of least bound, which stays open until all parts have been
        considered, by its most constrained node's choices.
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
