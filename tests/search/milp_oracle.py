"""The optimum of a layout graph by HiGHS, an independent solver."""

from __future__ import annotations

from neocpu.bench.solvers.milp import solve_milp
from neocpu.search.solver.layout_graph import LayoutGraph


def milp_optimum(graph: LayoutGraph) -> float:
    """The cost of the cheapest plan; ``inf`` if all are forbidden."""
    found = solve_milp(graph)
    assert found.proven
    return found.cost
