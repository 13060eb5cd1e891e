"""``neocpu bench scaling``: latency by number of threads, predicted beyond this machine's cores."""

from __future__ import annotations

import click

from neocpu.cli.bench_views.arguments import RecordingCommand, counts_of, of_models
from neocpu.cli.bench_views.view import Asked, note_missing_charts, report
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
    type=counts_of("threads"),
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

    request = ScalingRequest.of(machine, counts, asked.databases, asked.shapes)
    note_missing_charts(terminal, asked.page)
    return report(
        terminal,
        asked,
        f"Scaling of {asked.page.models}",
        predict_models,
        request,
        lambda found, run: present(found.reports, run),
        threads=request.counts,
    )
