"""The paper's heuristic: partitioned boolean quadratic programming (§3.3.2).

Nodes with at most two neighbours are eliminated exactly (R0, R1, R2). When none is left, the node
with the most neighbours is decided greedily (RN): it takes the choice that is cheapest if every
neighbour then makes its own best one. One RN makes the result a heuristic one.
"""

from __future__ import annotations

from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.reductions import Problem


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
