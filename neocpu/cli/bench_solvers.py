"""``neocpu bench --solvers``: the layout search of models, solved in every way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neocpu.cli.bench_page import Known, Page, show, write
from neocpu.cli.terminal import Terminal
from neocpu.schedules.errors import AccuracyError, NeoCPUError

if TYPE_CHECKING:
    from neocpu.bench.report import ModelFailure
    from neocpu.bench.solvers import SolverReport


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
    from neocpu.bench.report import ModelFailure
    from neocpu.bench.solver_tables import render, solver_table
    from neocpu.bench.solvers import SolverRequest, compare_models

    request = SolverRequest(known.threads, known.databases, known.shapes, milp_seconds)
    if not milp.available():
        terminal.note(f"SciPy is not installed, no check by HiGHS: {milp.INSTALL_HINT}")
    reports: list[SolverReport] = []
    failures: list[ModelFailure] = []
    with terminal.progress() as on_progress:
        for outcome in compare_models(models, request, on_progress):
            if isinstance(outcome, ModelFailure):
                failures.append(outcome)
            else:
                reports.append(outcome)
            terminal.note(str(outcome))
    run = Run(page.line, describe(), (), (known.threads,), 0)
    if reports:
        document = {
            "command": page.line,
            "machine": run.machine.to_json(),
            "results": [report.to_json() for report in reports],
            "failures": [{"model": one.name, "reason": one.reason} for one in failures],
        }
        table = solver_table(reports, failures)
        terminal.result(document, lambda: show([table], markdown=page.markdown))
        if page.output is not None:
            title = f"Layout search of {page.subject}"
            write(terminal, page.output, render(title, reports, failures, run, milp_seconds))
    return _exit_code(terminal, reports, failures)


def _exit_code(
    terminal: Terminal, reports: Sequence[SolverReport], failures: Sequence[ModelFailure]
) -> int:
    refuted = [report.name for report in reports if report.refuted]
    if refuted:
        return terminal.fail(
            f"HiGHS contradicts the exact solver: {', '.join(refuted)}", AccuracyError.exit_code
        )
    if not failures:
        return 0
    first = failures[0].error
    if not reports and len(failures) == 1:
        raise first
    code = first.exit_code if isinstance(first, NeoCPUError) else 1
    names = ", ".join(failure.name for failure in failures)
    return terminal.fail(f"{names} failed; the other results stand", code)
