"""``neocpu bench solvers``: the layout search of models, solved in every way."""

from __future__ import annotations

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models
from neocpu.cli.bench_views.page import collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError

EPILOG = """\b
Examples:
  neocpu bench solvers --suite all -o search.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models
@options.threads
@click.option(
    "--milp-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="S",
    help="The time HiGHS may take for each model.",
)
def command(terminal: Terminal, asked: Asked, milp_seconds: float) -> int:
    """Compare the solvers of the layout search: nothing is compiled or run."""
    from neocpu.bench.solvers import milp
    from neocpu.bench.solvers.solver_race import SolverRequest, compare_models
    from neocpu.bench.solvers.solver_tables import render, solver_table

    if not milp.available():
        terminal.note(f"SciPy is not installed, no check by HiGHS: {milp.INSTALL_HINT}")
    request = SolverRequest(
        asked.known.threads, asked.known.databases, asked.known.shapes, milp_seconds
    )
    found = collect(
        terminal,
        asked.models,
        lambda on_progress: compare_models(asked.models, request, on_progress),
    )
    reports, failures = found.reports, found.failures
    run = run_of(asked.page, asked.known)
    title = f"Layout search of {asked.page.subject}"
    present(
        terminal,
        found,
        run,
        asked.page,
        [solver_table(reports, failures)],
        lambda _: render(title, reports, failures, run, milp_seconds),
    )
    refuted = [report.name for report in reports if report.refuted]
    if refuted:
        words = f"HiGHS contradicts the exact solver: {', '.join(refuted)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return fail(terminal, found) if failures else 0
