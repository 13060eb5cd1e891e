"""``neocpu bench callers``: many threads calling one module."""

from __future__ import annotations

import click

from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, duration, of_artifacts
from neocpu.cli.bench_views.page import collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError

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
    from neocpu.bench.callers.callers_tables import callers_table, render
    from neocpu.bench.callers.many_callers import CallersRequest, measure_callers

    request = CallersRequest(callers, duration, asked.known.threads)
    found = collect(
        terminal,
        asked.models,
        lambda on_progress: measure_callers(asked.models, request, on_progress),
    )
    run = run_of(asked.page, asked.known)
    present(
        terminal,
        found,
        run,
        asked.page,
        [callers_table(found.reports)],
        lambda _: render(f"Many callers of {asked.page.subject}", found.reports, run),
    )
    if found.failures:
        return fail(terminal, found)
    unsound = [report.name for report in found.reports if not report.sound]
    if unsound:
        words = f"calls failed, changed affinities or gave other outputs: {', '.join(unsound)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0
