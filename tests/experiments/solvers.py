"""The global search's solvers on networks' layout graphs: nothing is compiled or run.

``python -m tests.experiments.solvers [--suite NAME] [MODEL …]`` solves each graph exactly, by the
paper's dynamic program and by its PBQP heuristic, and where SciPy is installed once more as a
mixed-integer program by HiGHS. It fails where HiGHS contradicts the exact solver.
"""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from neocpu.bench.results.table import Table
from neocpu.cli.parsing.model_arguments import with_suite
from neocpu.compilation.network_tuning import measured_schemes, open_store
from neocpu.compilation.read_model import read_network
from neocpu.foundation.host import usable_cpus
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.planning.costs import CostModel
from neocpu.planning.network_graph import build_graph
from neocpu.planning.optimisation_levels import operator_choices
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.plan import Plan, solve
from tests.search.milp_oracle import TOLERANCE, MilpResult, available, solve_milp


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverReport:
    """One network's layout graph, and its solutions; HiGHS's if SciPy is installed.

    ``peak_bytes`` is the peak memory of the exact solver, without the graph itself.
    """

    name: str
    edges: int
    exact: Plan
    dp: Plan
    pbqp: Plan
    peak_bytes: int
    milp: MilpResult | None

    def excess(self, cost: float) -> float:
        """Return how much more another plan costs, as a share of the exact plan's cost."""
        return 0.0 if cost == self.exact.cost else cost / self.exact.cost - 1

    @property
    def refuted(self) -> bool:
        """Whether HiGHS disproves what the exact solver claims."""
        if self.milp is None:
            return False
        slack = TOLERANCE * abs(self.exact.cost)
        return (
            self.milp.cost < self.exact.lower_bound - slack
            or self.milp.bound > self.exact.cost + slack
        )

    @property
    def verdict(self) -> str:
        """The comparison with HiGHS in a word."""
        if self.milp is None:
            return "-"
        if self.refuted:
            return "contradicts"
        return "equal" if self.milp.proven else "not finished"


def compare(model: str, costs: CostModel, milp_seconds: float) -> SolverReport:
    network = read_network(model, NO_SHAPES).computing(Precision.AUTO, costs.target)
    graph = build_graph(network, operator_choices(network, costs), costs)
    return SolverReport(
        name=Path(model).stem,
        edges=len(graph.edges),
        exact=solve(graph),
        dp=solve(graph, "dp"),
        pbqp=solve(graph, "pbqp"),
        peak_bytes=_peak_bytes(graph),
        milp=solve_milp(graph, milp_seconds) if available() else None,
    )


def _peak_bytes(graph: LayoutGraph) -> int:
    """Solve once more, slowly, with every allocation counted."""
    tracemalloc.start()
    try:
        solve(graph)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def table(reports: Sequence[SolverReport]) -> Table:
    rows = tuple(
        (
            one.name,
            str(one.exact.variables),
            str(one.edges),
            f"{one.exact.cost * 1e3:.3f}",
            f"{one.exact.seconds * 1e3:.1f}",
            f"{one.peak_bytes / 1e6:.1f}",
            f"{one.exact.gap:.2%}",
            f"{one.excess(one.dp.cost):.2%}",
            f"{one.excess(one.pbqp.cost):.2%}",
            one.verdict,
            "-" if one.milp is None else f"{one.milp.seconds:.1f}",
        )
        for one in reports
    )
    header = ("network", "variables", "edges", "cost ms", "solved in ms", "peak MB", "gap")
    header += ("DP loses", "PBQP loses", "HiGHS", "HiGHS s")
    return Table("Layout search", header, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; return 1 if the exact solver was contradicted."""
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.solvers")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--suite")
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--db", type=Path, action="append", default=[])
    parser.add_argument("--milp-seconds", type=float, default=600.0)
    chosen = parser.parse_args(arguments)
    target, store = host_target(), open_store(chosen.db)
    measured = partial(measured_schemes, store, target, chosen.threads)
    costs = CostModel(target, chosen.threads, measured)
    models = with_suite(chosen.models, chosen.suite)
    reports = [compare(model, costs, chosen.milp_seconds) for model in models]
    print(table(reports).markdown())
    return int(any(one.refuted for one in reports))


if __name__ == "__main__":
    sys.exit(main())
