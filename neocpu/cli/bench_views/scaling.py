"""``neocpu bench scaling``: latency over threads, predicted where there are no cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from neocpu.cli.bench_views.arguments import Asked, Counts, RecordingCommand, of_models
from neocpu.cli.bench_views.page import Page, note_missing_charts
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.results.document import Run
    from neocpu.bench.scaling.model_scaling import ScalingPrediction, ScalingRequest

EPILOG = """\b
Examples:
  neocpu bench scaling resnet50
  neocpu bench scaling resnet50 --threads 16 --machine icelake-server
  neocpu bench scaling resnet50 --batch 16 --machine znver4 -o scaling.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models
@click.option(
    "--threads",
    "counts",
    type=Counts("threads"),
    metavar="N[,N…]",
    help="By default 1,2,4,… to 64, as far as the machine has cores.",
)
@click.option(
    "--machine",
    metavar="NAME|FILE.json",
    help="The machine to predict for: znver4, znver5, icelake-server, or one that a file "
    "describes as --json prints it; by default one of this CPU, as it reads memory now.",
)
def command(
    terminal: Terminal, asked: Asked, counts: tuple[int, ...] | None, machine: str | None
) -> int:
    """Predict latency with up to 64 threads, and measure it as far as there are cores.

    Each MODEL is compiled for every number of threads. What keeps it from being as many times as
    fast is listed: loops with too few or uneven tasks, bandwidth, and entering parallel loops.
    """
    from neocpu.bench.scaling.model_scaling import ScalingRequest, predict_models
    from neocpu.bench.scaling.scaling_pictures import pictures
    from neocpu.bench.scaling.scaling_tables import METHOD, tables

    known = asked.known
    request = ScalingRequest.of(machine, counts, known.databases, known.shapes)
    note_missing_charts(terminal, asked.page.output)
    return report(
        terminal,
        asked,
        lambda on_progress: predict_models(asked.models, request, on_progress),
        lambda found: tables(found.reports),
        lambda title, found, run: _draw_and_render(
            terminal, title, found.reports, run, request, asked.page
        ),
        amend=lambda run: replace(run, threads=request.counts),
        pictures=pictures,
        title=f"Scaling of {asked.page.subject}",
        method=lambda run: METHOD,
    )


def _draw_and_render(
    terminal: Terminal,
    title: str,
    found: Sequence[ScalingPrediction],
    run: Run,
    request: ScalingRequest,
    page: Page,
) -> str:
    """Return the document, and draw the chart that it shows beside it."""
    from neocpu.bench.results import chart
    from neocpu.bench.scaling.scaling_chart import draw_scaling
    from neocpu.bench.scaling.scaling_tables import render

    charts = {}
    if (path := page.beside) is not None and chart.available():
        note = f"predicted of a {request.machine.cpu}; {chart.caption(run.machine, run.threads)}"
        draw_scaling(path, found, note)
        charts["Speed over the number of threads"] = path.name
        terminal.note(f"written: {path}")
    return render(title, found, run, charts)
