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
from neocpu.cli.bench_views.page import available
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

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
        method,
        render,
        startup_table,
    )

    there = available(terminal, peers or ())
    request = StartupRequest(there, source, asked.known.threads, rounds)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_startups(asked.models, request, on_progress),
        lambda found: [startup_table(one) for one in found.reports],
        lambda title, found, run: render(title, found.reports, run),
        title=f"Startup of {asked.page.subject}",
        method=method,
        amend=lambda run: replace(run, peers=there, rounds=rounds),
    )
