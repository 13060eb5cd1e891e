"""``neocpu bench --solvers``: the layout search of models, solved in every way."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.cli.bench_page import Known, Page, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError


def compare(
    terminal: Terminal, models: Sequence[str], known: Known, page: Page, *, milp_seconds: float
) -> int:
    """Solve, print and write; return the exit code.

    Parameters
    ----------
    milp_seconds : float
        Time that HiGHS may take for each model.
    """
    from neocpu.bench import milp
    from neocpu.bench.solver_tables import render, solver_table
    from neocpu.bench.solvers import SolverRequest, compare_models

    if not milp.available():
        terminal.note(f"SciPy is not installed, no check by HiGHS: {milp.INSTALL_HINT}")
    request = SolverRequest(known.threads, known.databases, known.shapes, milp_seconds)
    found = collect(
        terminal, models, lambda on_progress: compare_models(models, request, on_progress)
    )
    reports, failures = found.reports, found.failures
    run = run_of(page, known)
    title = f"Layout search of {page.subject}"
    present(
        terminal,
        found,
        run,
        page,
        [solver_table(reports, failures)],
        lambda _: render(title, reports, failures, run, milp_seconds),
    )
    refuted = [report.name for report in reports if report.refuted]
    if refuted:
        words = f"HiGHS contradicts the exact solver: {', '.join(refuted)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return fail(terminal, found) if failures else 0
