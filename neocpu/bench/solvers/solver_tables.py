"""The comparison of solvers as a table, and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neocpu.bench.results.document import Run, page
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.table import Table
from neocpu.bench.solvers import milp
from neocpu.bench.solvers.solver_race import SolverReport
from neocpu.foundation.units import plural

METHOD: Final = (
    "Each network's layout graph is solved exactly (`compile --solver auto`), by the paper's "
    "dynamic program (Algorithm 2, its tables limited in size) and by its PBQP heuristic, and the "
    "same graph once more as a mixed-integer program by HiGHS, with a limit of {seconds:g} s. A "
    "variable is an operator with more than one choice, or a feature map with several readers, "
    "whose choice is the set of layouts it is made available in. Costs are seconds of the whole "
    "network's kernels and layout transforms, as far as there is something to choose. Memory is "
    "what the exact solver allocates. A heuristic's loss is what its plan costs more than the "
    "exact one."
)


def solver_table(reports: Sequence[SolverReport], failures: Sequence[ModelFailure] = ()) -> Table:
    """Return a row per network."""
    header = (
        *("network", "variables", "edges", "cost ms", "solved in ms", "peak MB", "gap"),
        *("DP loses", "PBQP loses", "HiGHS", "HiGHS s"),
    )
    return Table("Layout search", header, tuple(map(_row, reports)), _notes(reports, failures))


def render(
    title: str,
    reports: Sequence[SolverReport],
    failures: Sequence[ModelFailure],
    run: Run,
    milp_seconds: float,
) -> str:
    """Return the document."""
    table = solver_table(reports, failures).markdown().rstrip()
    return page(title, run, METHOD.format(seconds=milp_seconds), ["## Results", table])


def _row(report: SolverReport) -> tuple[str, ...]:
    exact, found = report.exact, report.milp
    return (
        report.name,
        str(exact.variables),
        str(report.edges),
        f"{exact.cost * 1e3:.3f}",
        f"{exact.seconds * 1e3:.1f}",
        f"{report.peak_bytes / 1e6:.1f}",
        "0" if exact.proven else f"{exact.gap:.2%}",
        f"{report.excess(report.dp.cost):.2%}",
        f"{report.excess(report.pbqp.cost):.2%}",
        "-" if found is None else _verdict(report),
        "-" if found is None else f"{found.seconds:.1f}",
    )


def _verdict(report: SolverReport) -> str:
    if report.refuted:
        return "contradicts"
    if report.confirmed:
        return "equal"
    assert report.milp is not None
    return "unfinished" if not report.milp.proven else f"{report.excess(report.milp.cost):+.4%}"


def _notes(reports: Sequence[SolverReport], failures: Sequence[ModelFailure]) -> tuple[str, ...]:
    notes = [f"{failure.name} failed: {failure.reason}" for failure in failures]
    if not reports:
        return tuple(notes)
    measured, total = (
        sum(getattr(report, name) for report in reports) for name in ("measured", "convolutions")
    )
    proven, equal = (
        sum(map(bool, found))
        for found in ((r.exact.proven for r in reports), (r.confirmed for r in reports))
    )
    greedy = [report.name for report in reports if not report.pbqp.proven]
    rest = ", the others' estimated" if measured < total else ""
    notes += [
        f"Costs of {measured} of {plural(total, 'convolution')} are from tuning records{rest}.",
        f"{proven} of {plural(len(reports), 'plan')} proven optimal"
        + (f", {equal} by HiGHS too." if milp.available() else "; SciPy is not installed."),
        f"PBQP had to guess on {', '.join(greedy)}."
        if greedy
        else "PBQP never had to guess: its exact reductions alone solve these graphs.",
    ]
    return tuple(notes)
