"""Solve a layout graph by any solver, with a proof of how good the plan is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from neocpu.foundation.option_words import Solver
from neocpu.search.solver.dp import dynamic_program
from neocpu.search.solver.exact import lower_bound, solve_exactly
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.reductions import Problem, pbqp


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The time and memory that a search may use before it returns the best plan it has found."""

    # Wall-clock time. Reading the graph and a last greedy plan come on top, about a second for ten
    # thousand edges; networks have hundreds.
    seconds: float = 10.0
    bytes: int = 256 << 20  # size of the tables of a dynamic program or an elimination


# A relative gap below this is only the order in which costs were added up.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A solved layout graph."""

    choices: tuple[int, ...]  # one choice index per node
    cost: float  # cost of the plan; ``inf`` if every plan is forbidden
    lower_bound: float  # cost that no plan is below
    gap: float  # ``(cost - lower_bound) / |cost|``: 0 (to rounding) for a plan proven optimal
    solver: str  # method that found the plan: ``exact``, ``branch-and-bound``, ``dp`` or ``pbqp``
    seconds: float
    variables: int  # nodes with more than one choice
    # Whether the plan keeps a limit that the lower bound is a relaxation of: the gap is then not
    # the solver's, and more time does not close it.
    relaxed: bool = False

    @property
    def proven(self) -> bool:
        return self.gap == 0.0

    @property
    def verdict(self) -> str:
        """Words that say how good the plan is proven to be, and which option would improve it."""
        if self.proven:
            return "proven optimal"
        above = 100 * (self.cost / self.lower_bound - 1) if self.lower_bound > 0 else math.inf
        words = f"{above:.0f}" if above >= 100 else f"{above:.2g}"
        if self.relaxed:
            return f"at most {words} % above the best plan within the limit"
        remedy = "use --solver auto" if self.solver in ("dp", "pbqp") else "raise --search-seconds"
        return f"not proven optimal: at most {words} % above the best plan; {remedy}"


def solve(
    graph: LayoutGraph,
    solver: Solver = "auto",
    limits: SearchLimits | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """Choose one layout per node at least total cost; every plan comes with its gap.

    Solver ``auto`` is exact if it ends within ``limits``, and else returns the best plan found.
    ``exact`` has no time limit. ``dp`` and ``pbqp`` are the paper's methods.
    """
    limits = limits or SearchLimits()
    start = clock()
    seconds = math.inf if solver == "exact" else limits.seconds

    def expired() -> bool:
        return clock() - start >= seconds

    if solver in ("auto", "exact"):
        found = solve_exactly(graph, limits.bytes, expired)
        choices, bound = found.choices, found.lower_bound
        name = "branch-and-bound" if found.bounded else "exact"
    else:
        name = solver
        choices, proven = (
            dynamic_program(graph, limits.bytes, expired) if solver == "dp" else pbqp(graph)
        )
        bound = graph.cost(choices) if proven else _bound(graph, expired)
    choices = graph.with_derived(choices)
    cost = graph.cost(choices)
    bound = min(bound, cost)
    variables = sum(len(node.choices) > 1 for node in graph.nodes)
    return Plan(
        choices=choices,
        cost=cost,
        lower_bound=bound,
        gap=_gap(cost, bound),
        solver=name,
        seconds=clock() - start,
        variables=variables,
    )


def _bound(graph: LayoutGraph, expired: Callable[[], bool]) -> float:
    problem = Problem(graph)
    problem.reduce_fully(expired)
    return lower_bound(problem, expired).value


def _gap(cost: float, bound: float) -> float:
    if cost == bound or cost - bound <= ROUNDING * abs(cost) < math.inf:
        return 0.0
    return (cost - bound) / abs(cost) if cost and math.isfinite(cost) else math.inf
