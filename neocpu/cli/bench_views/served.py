"""``neocpu bench served``: a server under load, beside direct calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import RecordingCommand, counts_of, of_artifacts
from neocpu.cli.bench_views.view import Asked, Collected, report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.served.served_model import ServedReport

EPILOG = """\b
Examples:
  neocpu bench served resnet50.so --clients 1,32 -o serving.md
  neocpu bench served batches.so --max-batch 16 --clients 32"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_artifacts
@click.option(
    "--clients",
    type=counts_of("clients"),
    default="1,8,32",
    metavar="N[,N…]",
    help="Number of clients at once.",
)
@options.count(
    "--max-batch",
    help="Let the server compute up to N requests of one row each in one call. Direct calls then "
    "take whole batches, with the plan and the streams that compute the most rows a second.",
)
@click.option(
    "--max-delay",
    type=options.DURATION,
    default="2ms",
    help="With --max-batch: the longest time that a request waits for others.",
)
@click.option(
    "--duration", type=options.DURATION, default="60s", help="How long to measure each OUT.so."
)
def command(
    terminal: Terminal,
    asked: Asked,
    clients: tuple[int, ...],
    max_batch: int | None,
    max_delay: float,
    duration: float,
) -> int:
    """Put load on neocpu serve, in turn with direct calls.

    Throughput, latency and the cost of a request are measured.
    """
    from neocpu.bench.served.presentation import present
    from neocpu.bench.served.served_model import ServedRequest, measure_served

    return report(
        terminal,
        asked,
        f"{asked.page.models}, served",
        measure_served,
        ServedRequest(clients, duration, asked.threads, max_batch, max_delay),
        lambda found, run: present(found.reports),
        wrong=_wrong,
    )


def _wrong(found: Collected[ServedReport]) -> str:
    names = ", ".join(one.name for one in found.reports if one.wrong)
    return names and f"requests failed or gave other outputs: {names}"
