"""``neocpu bench served``: a server under load, beside direct calls."""

from __future__ import annotations

import click

from neocpu.cli.bench_views.arguments import Asked, Counts, RecordingCommand, duration, of_artifacts
from neocpu.cli.bench_views.page import collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError

EPILOG = """\b
Examples:
  neocpu bench served resnet50.so --clients 1,32 -o serving.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_artifacts
@click.option(
    "--clients",
    type=Counts("clients"),
    default="1,8,32",
    show_default=True,
    metavar="N[,N…]",
    help="How many clients at once.",
)
@duration
def command(terminal: Terminal, asked: Asked, clients: tuple[int, ...], duration: float) -> int:
    """Put load on neocpu serve, in turn with direct calls.

    Throughput, latency and what a request costs.
    """
    from neocpu.bench.served.served_model import ServedRequest, measure_served
    from neocpu.bench.served.served_tables import render, served_table

    request = ServedRequest(clients, duration, asked.known.threads)
    found = collect(
        terminal,
        asked.models,
        lambda on_progress: measure_served(asked.models, request, on_progress),
    )
    run = run_of(asked.page, asked.known)
    present(
        terminal,
        found,
        run,
        asked.page,
        [served_table(found.reports)],
        lambda _: render(f"{asked.page.subject}, served", found.reports, run),
    )
    if found.failures:
        return fail(terminal, found)
    wrong = [report.name for report in found.reports if report.wrong]
    if wrong:
        words = f"requests failed or gave other outputs: {', '.join(wrong)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0
