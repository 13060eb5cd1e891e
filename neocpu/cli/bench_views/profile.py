"""``neocpu bench profile``: the time of each operator in a run."""

from __future__ import annotations

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import RecordingCommand, of_models_or_artifacts
from neocpu.cli.bench_views.view import Asked, report
from neocpu.foundation.console.terminal import Terminal

EPILOG = """\b
Examples:
  neocpu bench profile resnet50
  neocpu bench profile resnet50 --precision int8
  neocpu bench profile --suite deployed -o profiles.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models_or_artifacts
@options.threads
@click.option(
    "--precision",
    type=options.OneOf(("int8", "auto")),
    help="First quantise the models with random data, to profile convolutions in 8-bit integers. "
    "Models that are quantised already do not need this.",
)
def command(terminal: Terminal, asked: Asked, precision: str | None) -> int:
    """Measure every operator inside the running network, and compare it with its limit.

    Convolutions in 8-bit integers are also compared with the peak of their multiply instructions.
    Kernels that take more than 2 % of a run and reach less than 10 % of their limit are marked.
    """
    from neocpu.bench.profile.network_profiles import ProfileRequest, measure_profiles
    from neocpu.bench.profile.presentation import present

    return report(
        terminal,
        asked,
        f"Profile of {asked.page.models}",
        measure_profiles,
        ProfileRequest(asked.threads, asked.databases, asked.shapes, precision),
        lambda found, run: present(found.reports),
    )
