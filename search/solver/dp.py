"""The paper's Algorithm 2: dynamic programming along the topological order.

The paper keeps, for each choice of the convolution just reached, the least cost of everything
before it. On a graph with branches that cost also depends on every earlier node that still has a
consumer ahead, so the state here is a table over this live frontier. On chains and trees that is
the paper's table. Where the tables would outgrow their limit, the frontier's oldest node is
committed to its best choice so far, and the result is no longer proven optimal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.reductions import Problem, Step, back_propagate, index_type

# Bytes of an entry of the table while it grows or shrinks: as it was, and as it is.
ENTRY_BYTES = 2 * 8


def dynamic_program(
    graph: LayoutGraph, max_bytes: int, expired: Callable[[], bool]
) -> tuple[tuple[int, ...], bool]:
    """Return the nodes' choices, and whether they are optimal.

    They are if no node was committed early, because tables exceeded ``max_bytes`` or time had
    `expired`.
    """
    sweep = _Sweep(Problem(graph))
    for node in graph.topological_order():
        sweep.make_room(node, 0 if expired() else max_bytes)
        sweep.visit(node)
    return back_propagate(sweep.trail, len(graph.nodes)), sweep.exact


class _Sweep:
    """The table over the live frontier, one axis per frontier node."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table: NDArray[np.float64] = np.zeros(())
        self.frontier: list[int] = []
        self.waiting = {u: set(row) for u, row in problem.pairs.items()}
        self.trail: list[Step] = []
        self.trail_bytes = 0
        self.exact = True

    def make_room(self, node: int, max_bytes: int) -> None:
        """Commit the frontier's oldest nodes until ``node`` fits into the table."""
        entry = ENTRY_BYTES * len(self.problem.alive[node])
        while self.frontier and self.table.size * entry + self.trail_bytes > max_bytes:
            self.exact &= self._commit(0)

    def visit(self, node: int) -> None:
        """Add ``node`` to the frontier, then drop every node that nothing ahead depends on."""
        costs = self.problem.unary[node]
        table = self.table[..., None] + costs
        for axis, u in enumerate(self.frontier):
            matrix = self.problem.pairs[u].get(node)
            if matrix is not None:
                shape = [1] * table.ndim
                shape[axis], shape[-1] = matrix.shape
                table += matrix.reshape(shape)
        self.table = table
        self.frontier.append(node)
        for u in self.problem.pairs[node]:
            self.waiting[u].discard(node)
        for u in tuple(self.frontier):
            if not self.waiting[u]:
                self._minimise(self.frontier.index(u))
            elif len(self.problem.alive[u]) == 1:
                self._commit(self.frontier.index(u))

    def _minimise(self, axis: int) -> None:
        node = self.frontier.pop(axis)
        best = np.asarray(self.table.argmin(axis=axis))
        best = best.astype(index_type(self.table.shape[axis]))
        self.trail_bytes += best.nbytes
        self.table = np.asarray(self.table.min(axis=axis))
        alive = self.problem.alive
        theirs = tuple(alive[u] for u in self.frontier)
        self.trail.append(Step(node, alive[node], tuple(self.frontier), theirs, best))

    def _commit(self, axis: int) -> bool:
        """Decide the frontier's node at ``axis``; say whether it had only that choice."""
        node = self.frontier.pop(axis)
        others = tuple(a for a in range(self.table.ndim) if a != axis)
        best = int(self.table.min(axis=others).argmin())
        self.table = np.take(self.table, [best], axis=axis).squeeze(axis)
        for u in self.waiting[node]:
            self.problem.unary[u] = self.problem.unary[u] + self.problem.pairs[node][u][best]
        alive = self.problem.alive[node]
        self.trail.append(Step(node, alive, (), (), np.array(best)))
        return len(alive) == 1
