"""``neocpu bench profile``: where the time of a run goes."""

from __future__ import annotations

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models_or_artifacts
from neocpu.cli.bench_views.view import report
from neocpu.cli.terminal import Terminal

EPILOG = """\b
Examples:
  neocpu bench profile resnet50
  neocpu bench profile --suite deployed -o profiles.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models_or_artifacts
@options.threads
def command(terminal: Terminal, asked: Asked) -> int:
    """Measure every operator inside the running network, and how near its limit it comes."""
    from neocpu.bench.profile.network_profiles import ProfileRequest, measure_profiles
    from neocpu.bench.profile.profile_tables import render, tables

    request = ProfileRequest(asked.known.threads, asked.known.databases, asked.known.shapes)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_profiles(asked.models, request, on_progress),
        lambda found: tables(found.reports),
        lambda found, run, _: render(f"Profile of {asked.page.subject}", found.reports, run),
    )
