"""``neocpu bench scaling``: latency by number of threads, predicted beyond this machine's cores."""

from __future__ import annotations

from dataclasses import replace

import click

from neocpu.cli.bench_views.arguments import Asked, Counts, RecordingCommand, of_models
from neocpu.cli.bench_views.page import note_missing_charts
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

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
    help="Numbers of threads; by default 1,2,4,… to 64, as far as the machine has cores.",
)
@click.option(
    "--machine",
    metavar="NAME|FILE.json",
    help="The machine to predict for: znver4, znver5, icelake-server, or a file that describes one "
    "as --json prints it. The default is this CPU, with the memory speed measured now.",
)
def command(
    terminal: Terminal, asked: Asked, counts: tuple[int, ...] | None, machine: str | None
) -> int:
    """Predict latency with up to 64 threads, and measure it as far as there are cores.

    Each MODEL is compiled for every number of threads. The causes that keep it from scaling are
    listed: loops with too few or uneven tasks, bandwidth, and the cost of entering parallel loops.
    """
    from neocpu.bench.scaling.model_scaling import ScalingRequest, predict_models
    from neocpu.bench.scaling.presentation import present

    known = asked.known
    request = ScalingRequest.of(machine, counts, known.databases, known.shapes)
    note_missing_charts(terminal, asked.page)
    return report(
        terminal,
        asked,
        lambda on_progress: predict_models(asked.models, request, on_progress),
        lambda found, run: present(found.reports, run),
        title=f"Scaling of {asked.page.models}",
        amend=lambda run: replace(run, threads=request.counts),
    )
