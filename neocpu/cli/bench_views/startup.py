"""``neocpu bench startup``: how soon artifacts serve, and what a second process costs."""

from __future__ import annotations

from dataclasses import replace

import click

from neocpu.cli.bench_views.arguments import (
    Asked,
    RecordingCommand,
    of_artifacts,
    peers,
    rounds,
    source,
)
from neocpu.cli.bench_views.page import available, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal

EPILOG = """\b
Examples:
  neocpu bench startup resnet50.so --model resnet50 --vs onnxruntime"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_artifacts
@peers
@source
@rounds
def command(
    terminal: Terminal,
    asked: Asked,
    peers: tuple[str, ...] | None,
    source: str | None,
    rounds: int,
) -> int:
    """Measure what a process does until its first output, step by step.

    And how many of the weights' pages two processes share. Each round starts fresh processes.
    """
    from neocpu.bench.startup.startup_report import (
        StartupRequest,
        measure_startups,
        render,
        startup_table,
    )

    there = available(terminal, peers or ())
    request = StartupRequest(there, source, asked.known.threads, rounds)
    found = collect(
        terminal,
        asked.models,
        lambda on_progress: measure_startups(asked.models, request, on_progress),
    )
    run = replace(run_of(asked.page, asked.known), peers=there, rounds=rounds)
    present(
        terminal,
        found,
        run,
        asked.page,
        [startup_table(report) for report in found.reports],
        lambda _: render(f"Startup of {asked.page.subject}", found.reports, run),
    )
    return fail(terminal, found) if found.failures else 0
