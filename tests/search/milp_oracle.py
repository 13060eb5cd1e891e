"""An independent solver of the global search's problem, as a mixed-integer linear program.

SciPy's HiGHS solves it by branch and cut over linear relaxations, which shares neither code nor
idea with the solvers in `neocpu.search`.
"""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neocpu.search.solver.layout_graph import LayoutGraph, Vector

# HiGHS works to absolute tolerances of 1e-6 or so; costs are scaled to this largest one.
LARGEST: Final = 1e4
# Relative difference of costs that is within those tolerances.
TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class MilpResult:
    """A solution that HiGHS found."""

    cost: float  # cost of its best plan, as the layout graph counts it; ``inf`` if it found none
    bound: float  # lower bound on the cost of every plan
    proven: bool  # whether it finished
    seconds: float


def milp_optimum(graph: LayoutGraph) -> float:
    """Return the cost of the cheapest plan; ``inf`` if all are forbidden."""
    found = solve_milp(graph)
    assert found.proven
    return found.cost


def available() -> bool:
    """Return whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def solve_milp(graph: LayoutGraph, seconds: float = math.inf) -> MilpResult:
    """Solve ``graph`` with HiGHS, within a limit of time.

    Each choice is a binary variable, and exactly one of a node's is 1. Each pair of choices of an
    edge's ends is a variable; the sums over either end equal that end's variables.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    start = time.perf_counter()
    if not graph.nodes:
        return MilpResult(0.0, 0.0, True, 0.0)
    program = _program(graph)
    finite = np.isfinite(program.costs)
    costs = np.where(finite, program.costs, 0.0)
    scale = LARGEST / (float(np.abs(costs).max()) or LARGEST)
    choices = program.starts[-1]
    result = milp(
        costs * scale,
        constraints=LinearConstraint(program.matrix, program.sides, program.sides),
        bounds=Bounds(0.0, finite.astype(float)),
        integrality=np.arange(len(costs)) < choices,
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    elapsed = time.perf_counter() - start
    infeasible, proven = result.status == 2, result.status in (0, 2)
    if result.x is None:
        return MilpResult(math.inf, math.inf if infeasible else -math.inf, proven, elapsed)
    chosen = [
        int(np.argmax(result.x[low:high]))
        for low, high in zip(program.starts[:-1], program.starts[1:], strict=True)
    ]
    cost = graph.cost(chosen)
    bound = cost if proven else float(result.mip_dual_bound) / scale
    return MilpResult(cost, bound, proven, elapsed)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """Minimise ``costs @ x`` where ``matrix @ x == sides``; ``starts`` are the nodes' first x."""

    costs: Vector
    matrix: Any
    sides: Vector
    starts: tuple[int, ...]


def _program(graph: LayoutGraph) -> _Program:
    from scipy.sparse import coo_array

    starts = tuple(np.cumsum([0, *(len(node.choices) for node in graph.nodes)]).tolist())
    costs = [np.array(node.costs) for node in graph.nodes]
    rows = [np.repeat(np.arange(len(costs)), [len(own) for own in costs])]
    columns = [np.arange(starts[-1])]
    values = [np.ones(starts[-1])]
    row, column = len(graph.nodes), starts[-1]
    for edge in graph.edges:
        pairs = np.arange(edge.costs.size).reshape(edge.costs.shape)
        costs.append(edge.costs.ravel())
        for end, axis in ((edge.source, 0), (edge.target, 1)):
            size: int = pairs.shape[axis]
            # Over all pairs: their sum per choice of this end …
            rows.append(row + np.indices(pairs.shape)[axis].ravel())
            columns.append(column + pairs.ravel())
            values.append(np.ones(pairs.size))
            # … is that choice.
            rows.append(row + np.arange(size))
            columns.append(starts[end] + np.arange(size))
            values.append(-np.ones(size))
            row += size
        column += pairs.size
    entries = (np.concatenate(rows), np.concatenate(columns))
    matrix = coo_array((np.concatenate(values), entries), shape=(row, column)).tocsr()
    sides = np.zeros(row)
    sides[: len(graph.nodes)] = 1.0
    return _Program(np.concatenate(costs), matrix, sides, starts)
