"""``neocpu bench --solvers``: the layout search of models, solved in every way."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.cli.bench_page import Known, Page, collect, conclude, fail, show, write
from neocpu.cli.terminal import Terminal
from neocpu.schedules.errors import AccuracyError


def compare(
    terminal: Terminal, models: Sequence[str], known: Known, milp_seconds: float, page: Page
) -> int:
    """Solve, print and write; return the exit code.

    Parameters
    ----------
    milp_seconds : float
        Time that HiGHS may take for each model.
    """
    from neocpu.bench import milp
    from neocpu.bench.document import Run
    from neocpu.bench.machine import describe
    from neocpu.bench.solver_tables import render, solver_table
    from neocpu.bench.solvers import SolverRequest, compare_models

    if not milp.available():
        terminal.note(f"SciPy is not installed, no check by HiGHS: {milp.INSTALL_HINT}")
    request = SolverRequest(known.threads, known.databases, known.shapes, milp_seconds)
    found = collect(
        terminal, models, lambda on_progress: compare_models(models, request, on_progress)
    )
    reports, failures = found.reports, found.failures
    run = Run(page.line, describe(), (), (known.threads,), 0)
    document = {
        "command": page.line,
        "machine": run.machine.to_json(),
        "results": [report.to_json() for report in reports],
        "failures": [failure.to_json() for failure in failures],
    }

    def save() -> None:
        if page.output is not None:
            title = f"Layout search of {page.subject}"
            write(terminal, page.output, render(title, reports, failures, run, milp_seconds))

    table = solver_table(reports, failures)
    conclude(terminal, found, document, lambda: show([table], markdown=page.markdown), save)
    refuted = [report.name for report in reports if report.refuted]
    if refuted:
        words = f"HiGHS contradicts the exact solver: {', '.join(refuted)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return fail(terminal, found) if failures else 0
