"""``neocpu bench profile``: where the time of a run goes."""

from __future__ import annotations

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models_or_artifacts
from neocpu.cli.bench_views.view import report
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
    help="Quantise models first, by random data; then convolutions in 8-bit integers stand beside "
    "the peak of their instructions, as they do of quantised models without this.",
)
def command(terminal: Terminal, asked: Asked, precision: str | None) -> int:
    """Measure every operator inside the running network, and how near its limit it comes.

    8-bit convolutions also beside the peak of the instructions that multiply in them. Kernels above
    2 % of a run that reach less than 10 % of their limit are marked.
    """
    from neocpu.bench.profile.network_profiles import ProfileRequest, measure_profiles
    from neocpu.bench.profile.presentation import present

    known = asked.known
    request = ProfileRequest(known.threads, known.databases, known.shapes, precision)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_profiles(asked.models, request, on_progress),
        lambda found, run: present(found.reports),
        title=f"Profile of {asked.page.subject}",
    )
