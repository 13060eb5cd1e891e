"""``neocpu bench solvers``: the layout search of models, solved in every way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.solvers.solver_race import SolverReport

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
    help="The time HiGHS, of neocpu[bench], may take for each model.",
)
def command(terminal: Terminal, asked: Asked, milp_seconds: float) -> int:
    """Compare the solvers of the layout search: nothing is compiled or run."""
    from neocpu.bench.solvers import milp
    from neocpu.bench.solvers.solver_race import SolverRequest, compare_models
    from neocpu.bench.solvers.solver_tables import METHOD, render, solver_table

    if not milp.available():
        terminal.note(f"SciPy is not installed, no check by HiGHS: {milp.INSTALL_HINT}")
    request = SolverRequest(
        asked.known.threads, asked.known.databases, asked.known.shapes, milp_seconds
    )
    return report(
        terminal,
        asked,
        lambda on_progress: compare_models(asked.models, request, on_progress),
        lambda found: [solver_table(found.reports, found.failures)],
        lambda title, found, run: render(title, found.reports, found.failures, run, milp_seconds),
        title=f"Layout search of {asked.page.subject}",
        method=lambda run: METHOD.format(seconds=milp_seconds),
        wrong=_refuted,
    )


def _refuted(reports: Sequence[SolverReport]) -> str:
    names = ", ".join(one.name for one in reports if one.refuted)
    return names and f"HiGHS contradicts the exact solver: {names}"
