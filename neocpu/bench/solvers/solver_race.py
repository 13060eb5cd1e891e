"""The global search's solvers compared on networks' layout graphs: nothing is compiled or run."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.solvers import milp
from neocpu.bench.solvers.milp import MilpResult
from neocpu.compilation.network_tuning import measured_schemes, open_store
from neocpu.compilation.read_model import read_network
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import json_number
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.planning.choice import is_estimated
from neocpu.planning.costs import CostModel
from neocpu.planning.network_graph import build_graph
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.optimisation_levels import operator_choices
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.target import host_target
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.plan import Plan, solve


@dataclass(frozen=True, slots=True)
class SolverRequest:
    """What to compare.

    Attributes
    ----------
    threads : int
        The plans are made for.
    databases : tuple of Path
        Tuning databases, as `neocpu.compile` takes them.
    shapes : InputShapes
    milp_seconds : float
        Time limit of HiGHS for each model.
    """

    threads: int
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES
    milp_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class SolverReport:
    """One network's layout graph, and what became of it.

    Attributes
    ----------
    convolutions, measured : int
        Convolutions, and those of them with tuning records, of this CPU or of a relative; the
        others' costs are estimates.
    edges : int
        Of the layout graph.
    exact, dp, pbqp : Plan
    peak_bytes : int
        Most memory the exact solver held at a time, the graph itself not counted.
    milp : MilpResult or None
        What HiGHS found; None if SciPy is not installed.
    """

    name: str
    convolutions: int
    measured: int
    edges: int
    exact: Plan
    dp: Plan
    pbqp: Plan
    peak_bytes: int
    milp: MilpResult | None

    def excess(self, cost: float) -> float:
        """Return by how much of the exact plan's cost another plan costs more."""
        return 0.0 if cost == self.exact.cost else cost / self.exact.cost - 1

    @property
    def confirmed(self) -> bool | None:
        """Whether HiGHS proved the same optimum; None if it did not finish."""
        if self.milp is None or not self.milp.proven:
            return None
        return self.exact.proven and abs(self.excess(self.milp.cost)) <= milp.TOLERANCE

    @property
    def refuted(self) -> bool:
        """Whether HiGHS disproves what the exact solver claims."""
        if self.milp is None:
            return False
        slack = milp.TOLERANCE * abs(self.exact.cost)
        return (
            self.milp.cost < self.exact.lower_bound - slack
            or self.milp.bound > self.exact.cost + slack
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.exact.variables} variables, {self.exact.verdict}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; costs in seconds, `excess` of the heuristics' and HiGHS's plans."""
        plans = {"exact": self.exact, "dp": self.dp, "pbqp": self.pbqp}
        return {
            "model": self.name,
            "convolutions": self.convolutions,
            "measured": self.measured,
            "variables": self.exact.variables,
            "edges": self.edges,
            "peak_bytes": self.peak_bytes,
            **{
                name: _without_choices(plan, self.excess(plan.cost)) for name, plan in plans.items()
            },
            "milp": None if self.milp is None else _finite(asdict(self.milp)),
            "confirmed": self.confirmed,
        }


def compare_models(
    models: Sequence[str], request: SolverRequest, on_progress: ProgressCallback = silent
) -> Iterator[SolverReport | ModelFailure]:
    """Solve each model's layout graph in every way, and yield what came out.

    Parameters
    ----------
    models : sequence of str
        ``.onnx`` files or built-in names.

    Raises
    ------
    DatabaseError
        If a tuning database cannot be read.
    """
    target, store = host_target(), open_store(request.databases)
    measured = partial(measured_schemes, store, target, request.threads)
    costs = CostModel(target=target, threads=request.threads, measured=measured)

    def measure(number: int, model: str) -> SolverReport:
        on_progress(Progress("solve", number, len(models), model))
        return _compare(model, request, costs)

    return measure_each(models, measure)


def _compare(model: str, request: SolverRequest, costs: CostModel) -> SolverReport:
    network = read_network(model, request.shapes).computing(Precision.AUTO, costs.target)
    choices = operator_choices(network, costs)
    graph = build_graph(network, choices, costs)
    measured = [
        any(not is_estimated(choice.source) for choice in options)
        for op, options in zip(network.ops, choices, strict=True)
        if isinstance(op, ConvOp)
    ]
    return SolverReport(
        Path(model).stem,
        len(measured),
        sum(measured),
        len(graph.edges),
        solve(graph),
        solve(graph, "dp"),
        solve(graph, "pbqp"),
        _peak_bytes(graph),
        milp.solve_in_child(graph, request.milp_seconds) if milp.available() else None,
    )


def _peak_bytes(graph: LayoutGraph) -> int:
    """Solve once more, slowly, with every allocation counted."""
    tracemalloc.start()
    try:
        solve(graph)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _without_choices(plan: Plan, excess: float) -> dict[str, Any]:
    data = plan.to_json()
    del data["choices"]
    return _finite({**data, "excess": excess})


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    return {k: json_number(v) if isinstance(v, float) else v for k, v in data.items()}
