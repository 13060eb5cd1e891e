"""``neocpu bench callers``: many threads calling one module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, duration, of_artifacts
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.callers.many_callers import CallersReport

EPILOG = """\b
Examples:
  neocpu bench callers resnet50.so --callers 32 --duration 10m"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_artifacts
@click.option(
    "--callers",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="Threads that call.",
)
@duration
def command(terminal: Terminal, asked: Asked, callers: int, duration: float) -> int:
    """Call one module from many threads, in turn with a single one.

    Are outputs equal, memory and threads steady, and calls as fast?
    """
    from neocpu.bench.callers.callers_tables import METHOD, callers_table, render
    from neocpu.bench.callers.many_callers import CallersRequest, measure_callers

    request = CallersRequest(callers, duration, asked.known.threads)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_callers(asked.models, request, on_progress),
        lambda found: [callers_table(found.reports)],
        lambda title, found, run: render(title, found.reports, run),
        title=f"Many callers of {asked.page.subject}",
        method=lambda run: METHOD,
        wrong=_unsound,
    )


def _unsound(reports: Sequence[CallersReport]) -> str:
    names = ", ".join(one.name for one in reports if not one.sound)
    return names and f"calls failed, changed affinities or gave other outputs: {names}"
