"""A layout graph being solved: exact reductions, and the trail that leads back to a plan.

Eliminating a node replaces it by what its best choice costs for every choice of its neighbours,
and notes that best choice on a trail. Once no node is left, the trail read backwards is the plan.
With at most two neighbours the result is again a graph (R0, R1 and R2 of Scholz & Eckstein's PBQP
solver, which the paper cites, §3.3.2), so nothing is lost and nothing grows. When no such node is
left, `pbqp` decides the node with the most neighbours greedily (RN): it takes the choice that is
cheapest if every neighbour then makes its own best one. One RN makes the result a heuristic one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.search.solver.layout_graph import LayoutGraph, Matrix, Vector

# An edge whose matrix is a column plus a row up to this share of its largest entry couples nothing.
DECOUPLED = 1e-13
# Entries of the arrays that a reduction goes through its sums in, a part of them at a time: they
# stay in the caches, and a node between two with hundreds of choices takes no more memory.
PART = 1 << 16


@dataclass(frozen=True, slots=True)
class Step:
    """One eliminated node."""

    node: int
    alive: NDArray[np.intp]  # choices it still had
    neighbours: tuple[int, ...]  # nodes its choice depends on, all eliminated later
    neighbours_alive: tuple[NDArray[np.intp], ...]  # their choices at that time, ascending
    # Position in ``alive`` of the best choice for every combination of theirs.
    best: NDArray[np.integer]


def back_propagate(trail: list[Step], size: int) -> tuple[int, ...]:
    """Return the plan a complete trail stands for."""
    choices = [-1] * size
    for step in reversed(trail):
        at = tuple(
            int(np.searchsorted(alive, choices[n]))
            for n, alive in zip(step.neighbours, step.neighbours_alive, strict=True)
        )
        choices[step.node] = int(step.alive[int(step.best[at])])
    assert -1 not in choices, "incomplete trail"
    return tuple(choices)


class Problem:
    """A working copy of a layout graph. Arrays are replaced, never written, so copies share them.

    `unary` has the cost of each remaining choice of each remaining node. For every remaining edge,
    ``pairs[v][u]`` is the transpose of ``pairs[u][v]``. `alive` has the original indices of each
    node's remaining choices, ascending. No remaining choice changes the cost `offset`. `trail` has
    the reductions so far, by which `back_propagate` finds the plan.
    """

    __slots__ = ("alive", "offset", "pairs", "size", "trail", "unary")

    def __init__(self, graph: LayoutGraph) -> None:
        self.size = len(graph.nodes)
        self.unary: dict[int, Vector] = {
            u: np.array(node.costs, dtype=np.float64) for u, node in enumerate(graph.nodes)
        }
        self.pairs: dict[int, dict[int, Matrix]] = {u: {} for u in self.unary}
        self.alive = {u: np.arange(len(costs)) for u, costs in self.unary.items()}
        self.offset = 0.0
        self.trail: list[Step] = []
        for edge in graph.edges:
            self._add_pair(edge.source, edge.target, edge.costs)

    def copy(self) -> Problem:
        other = object.__new__(Problem)
        other.size = self.size
        other.unary = dict(self.unary)
        other.pairs = {u: dict(row) for u, row in self.pairs.items()}
        other.alive = dict(self.alive)
        other.offset = self.offset
        other.trail = list(self.trail)
        return other

    def plan(self) -> tuple[int, ...]:
        assert not self.unary, f"{len(self.unary)} nodes left"
        return back_propagate(self.trail, self.size)

    def fix(self, node: int, position: int) -> None:
        self.offset += float(self.unary[node][position])
        for v, matrix in self.pairs[node].items():
            self.unary[v] = self.unary[v] + matrix[position]
        self._remove(node, (), np.array(position))

    def reduce(self) -> None:
        """Eliminate, exactly, every node with one choice or at most two neighbours (R0, R1, R2)."""
        queue = dict.fromkeys(self.unary)
        while queue:
            node = next(iter(queue))
            del queue[node]
            if node not in self.unary:
                continue
            neighbours = tuple(self.pairs[node])
            if len(self.alive[node]) == 1:
                self.fix(node, 0)
            elif len(neighbours) <= 2:
                self._eliminate(node, neighbours)
            else:
                continue
            queue.update(dict.fromkeys(neighbours))

    def reduce_fully(self, expired: Callable[[], bool] = lambda: False) -> None:
        """Alternate `reduce` and the removal of dominated choices until neither helps. `expired`
        says when to stop; what is done by then stands.
        """
        self.reduce()
        while any([not expired() and self._drop_dominated(u) for u in tuple(self.unary)]):
            self.reduce()

    def _eliminate(self, node: int, neighbours: tuple[int, ...]) -> None:
        own = self.unary[node]
        best: NDArray[np.integer]
        if not neighbours:
            best = np.array(own.argmin())
            self.offset += float(own[best])
        elif len(neighbours) == 1:
            (v,) = neighbours
            costs = own[:, None] + self.pairs[node][v]
            best = costs.argmin(axis=0)
            self.unary[v] = self.unary[v] + costs.min(axis=0)
        else:
            v, w = neighbours
            costs, best = _least_sum(own[:, None] + self.pairs[node][v], self.pairs[node][w])
            self._add_pair(v, w, costs)
        self._remove(node, neighbours, best)

    def _remove(self, node: int, neighbours: tuple[int, ...], best: NDArray[np.integer]) -> None:
        theirs = tuple(self.alive[v] for v in neighbours)
        self.trail.append(Step(node, self.alive[node], neighbours, theirs, best))
        self.forget(node)

    def forget(self, node: int) -> None:
        """Drop ``node`` and its edges; the caller has seen to the trail."""
        for v in self.pairs[node]:
            del self.pairs[v][node]
        del self.pairs[node], self.unary[node], self.alive[node]

    def _add_pair(self, u: int, v: int, costs: Matrix) -> None:
        """Add an edge; what depends on one end alone moves there, and an empty edge is dropped."""
        if v in self.pairs[u]:
            costs = costs + self.pairs[u][v]
        finite = costs[np.isfinite(costs)]
        scale = float(np.abs(finite).max()) if finite.size else 0.0
        costs, rows = _split_minimum(costs)
        costs, columns = _split_minimum(costs.T)
        self.unary[u] = self.unary[u] + rows
        self.unary[v] = self.unary[v] + columns
        if costs.max(initial=0.0) <= DECOUPLED * scale:
            self.pairs[u].pop(v, None)
            self.pairs[v].pop(u, None)
        else:
            self.pairs[u][v], self.pairs[v][u] = costs.T, costs

    def _drop_dominated(self, node: int) -> bool:
        """Drop choices that another beats for all neighbours' choices; return whether any fell."""
        own = self.unary[node]
        if len(own) == 1:
            return False
        # margin[a, b]: how much b is better than a at least.
        margin = _difference(own[:, None], own[None, :])
        for matrix in self.pairs[node].values():
            worst = _least_difference(matrix)
            np.add(margin, worst, out=margin, where=np.isfinite(margin))
        keep = np.ones(len(own), dtype=bool)
        for choice in range(len(own) - 1, -1, -1):
            others = keep.copy()
            others[choice] = False
            keep[choice] = not (others.any() and margin[choice, others].max() >= 0)
        if keep.all():
            return False
        self.alive[node] = self.alive[node][keep]
        self.unary[node] = own[keep]
        # An edge may fall apart once the choices that held it together are gone: re-add it.
        for v, matrix in tuple(self.pairs[node].items()):
            del self.pairs[node][v], self.pairs[v][node]
            self._add_pair(node, v, matrix[keep])
        return True


def index_type(count: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest type of an index below ``count``."""
    return np.min_scalar_type(count - 1)


def _least_sum(a: Matrix, b: Matrix) -> tuple[Matrix, NDArray[np.integer]]:
    """Return the least ``a[i, v] + b[i, w]`` over i for every v and w, and which i that is."""
    shape = (a.shape[1], b.shape[1])
    least, best = np.full(shape, np.inf), np.zeros(shape, dtype=index_type(len(a)))
    count = max(1, PART // least.size)
    for first in range(0, len(a), count):
        part = slice(first, first + count)
        sums = a[part, :, None] + b[part, None, :]
        lowest = sums.min(axis=0)
        better = lowest < least
        np.copyto(least, lowest, where=better)
        best[better] = (sums.argmin(axis=0) + first)[better]
    return least, best


def _least_difference(rows: Matrix) -> Matrix:
    """Return the least ``rows[a, j] - rows[b, j]`` over j for every a and b."""
    count = max(1, PART // rows.size)
    parts = (rows[first : first + count, None, :] for first in range(0, len(rows), count))
    return np.concatenate([_difference(part, rows[None, :, :]).min(axis=2) for part in parts])


def _split_minimum(costs: Matrix) -> tuple[Matrix, Vector]:
    """Split off each row's minimum. A row that is all ``inf`` becomes zeros."""
    lowest = costs.min(axis=1)
    dead = np.isinf(lowest)
    if not dead.any():
        return costs - lowest[:, None], lowest
    rest = costs - np.where(dead, 0.0, lowest)[:, None]
    rest[dead] = 0.0
    return rest, lowest


def _difference(a: Matrix, b: Matrix) -> Matrix:
    """Return ``a - b``, ``inf - inf`` being ``inf``: what is forbidden anyway decides nothing."""
    with np.errstate(invalid="ignore"):
        difference = a - b
    return np.where(np.isnan(difference), np.inf, difference)


def pbqp(graph: LayoutGraph) -> tuple[tuple[int, ...], bool]:
    """Solve ``graph`` with the PBQP heuristic. Returns the choices, and whether R0, R1 and R2
    sufficed, so that they are optimal.
    """
    problem = Problem(graph)
    return complete_greedily(problem)


def complete_greedily(problem: Problem) -> tuple[tuple[int, ...], bool]:
    """Run `pbqp` on a partly solved problem, which is consumed."""
    exact = True
    problem.reduce()
    while problem.unary:
        node = max(problem.pairs, key=lambda u: (len(problem.pairs[u]), -u))
        costs = problem.unary[node]
        for v, matrix in problem.pairs[node].items():
            costs = costs + (matrix + problem.unary[v]).min(axis=1)
        problem.fix(node, int(costs.argmin()))
        exact = False
        problem.reduce()
    return problem.plan(), exact
