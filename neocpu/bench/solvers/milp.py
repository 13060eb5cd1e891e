"""An independent check of the global search: the same problem as a mixed-integer linear program.

SciPy's HiGHS solves it by branch and cut over linear relaxations, which shares neither code nor
idea with the solvers in `neocpu.search`.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neocpu.bench.engines.contender_process import die_with_parent
from neocpu.building.own_session import started
from neocpu.foundation.python_child import program_command
from neocpu.search.solver.layout_graph import LayoutGraph, Vector

INSTALL_HINT: Final = "pip install 'neocpu[bench]'"
# HiGHS works to absolute tolerances of 1e-6 or so; costs are scaled to this largest one.
LARGEST: Final = 1e4
# Relative difference of costs that is within those tolerances.
TOLERANCE: Final = 1e-6
_PROGRAM: Final = "from neocpu.bench.solvers.milp import answer; answer()"


@dataclass(frozen=True, slots=True)
class MilpResult:
    """What HiGHS found.

    Attributes
    ----------
    cost : float
        Of its best plan, by the layout graph's own reckoning; ``inf`` if it found none.
    bound : float
        No plan costs less.
    proven : bool
        Whether it finished.
    seconds : float
    """

    cost: float
    bound: float
    proven: bool
    seconds: float


def available() -> bool:
    """Return whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def solve_in_child(graph: LayoutGraph, seconds: float) -> MilpResult:
    """Run `solve_milp` in a process of its own, for HiGHS does not heed Ctrl-C.

    A process that runs out of memory counts as one that did not finish.
    """
    start = time.perf_counter()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(program_command(_PROGRAM), **pipes) as child:
        written, _ = child.communicate(pickle.dumps((graph, seconds)))
    if child.returncode != 0:
        return MilpResult(math.inf, -math.inf, False, time.perf_counter() - start)
    reply: MilpResult | Exception = pickle.loads(written)
    if isinstance(reply, Exception):
        raise reply
    return reply


def answer() -> None:
    """Solve what standard input holds, and write what is found to standard output."""
    die_with_parent()
    # What HiGHS prints must not land in the reply.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        reply: MilpResult | Exception
        try:
            reply = solve_milp(*pickle.load(sys.stdin.buffer))
        except Exception as error:  # the parent's to report
            reply = error
        pickle.dump(reply, output)


def solve_milp(graph: LayoutGraph, seconds: float = math.inf) -> MilpResult:
    """Solve ``graph`` with HiGHS.

    A choice is a binary variable, of which each node has one; a pair of choices of an edge's ends
    is a variable whose sums over either end are that end's variables.

    Parameters
    ----------
    seconds : float
        Time limit.
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
    picked = [
        int(np.argmax(result.x[low:high]))
        for low, high in zip(program.starts[:-1], program.starts[1:], strict=True)
    ]
    cost = graph.cost(picked)
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
