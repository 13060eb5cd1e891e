"""A lower bound on the cost of any plan, by dual ascent (sequential reweighted message passing).

Cost is moved between nodes and edges without changing what any plan costs. The sum of all minima is
then a lower bound; each sweep moves cost so that this sum never falls. On trees one sweep makes it
exact (Kolmogorov, "A New Look at Reweighted Message Passing", TPAMI 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neocpu.search.solver.layout_graph import Matrix, Vector
from neocpu.search.solver.reductions import Problem

MAX_SWEEPS = 100
# Stop when two sweeps together raise the bound by less than this share of it.
PROGRESS = 1e-4


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound, and the choice positions that the moved costs suggest.

    There are no positions where time was up before all nodes had one.
    """

    value: float
    positions: dict[int, int]


def lower_bound(problem: Problem, expired: Callable[[], bool] = lambda: False) -> Bound:
    """Return a lower bound on the cost of ``problem``, fixed cost included. `expired` returns
    whether to stop raising the bound, which is valid at any time.
    """
    return _Ascent(problem).run(expired)


class _Ascent:
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
