"""``neocpu bench accuracy``: how far networks' outputs are from the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.accuracy.network_errors import AccuracyReport
    from neocpu.bench.accuracy.planted_errors import RefusalReport


class Factors(click.ParamType[tuple[float, ...]]):
    """A list such as ``1e-4,1,1e4``."""

    name = "factors"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            factors = tuple(float(word) for word in str(value).split(","))
        except ValueError:
            factors = ()
        if not factors or not all(0 < factor < math.inf for factor in factors):
            self.fail(f"'{value}' is not a list of factors such as 1e-4,1,1e4", param, ctx)
        return factors


EPILOG = """\b
Examples:
  neocpu bench accuracy --suite all -o accuracy.md
  neocpu bench accuracy resnet50 --scales 1e-4,1e4"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models
@options.threads
@click.option(
    "--scales",
    type=Factors(),
    metavar="F[,F…]",
    help="Multiply every MODEL's inputs and weights by each F instead, and plant wrong elements in "
    "its outputs: is each of these refused, and nothing else?",
)
def command(terminal: Terminal, asked: Asked, scales: tuple[float, ...] | None) -> int:
    """Measure norm-wise errors against float64.

    Of every level of compile --accuracy, and of ONNX Runtime.
    """
    if scales is not None:
        return _refusals(terminal, asked, scales)
    from neocpu.bench.accuracy.accuracy_tables import METHOD, accuracy_table, render
    from neocpu.bench.accuracy.network_errors import AccuracyRequest, measure_accuracy

    request = AccuracyRequest(asked.known.threads, asked.known.databases, asked.known.shapes)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_accuracy(asked.models, request, on_progress),
        lambda found: [accuracy_table(found.reports, found.failures)],
        lambda title, found, run: render(title, found.reports, found.failures, run),
        title=f"Accuracy of {asked.page.subject}",
        method=lambda run: METHOD,
        wrong=_missed,
    )


def _missed(reports: Sequence[AccuracyReport]) -> str:
    names = ", ".join(f"{one.name} ({', '.join(one.missed)})" for one in reports if one.missed)
    return names and f"less exact than promised: {names}"


def _refusals(terminal: Terminal, asked: Asked, scales: tuple[float, ...]) -> int:
    from neocpu.bench.accuracy.network_errors import AccuracyRequest
    from neocpu.bench.accuracy.planted_errors import measure_refusals
    from neocpu.bench.accuracy.refusal_tables import METHOD, refusal_table, render

    request = AccuracyRequest(asked.known.threads, asked.known.databases, asked.known.shapes)
    return report(
        terminal,
        asked,
        lambda on_progress: measure_refusals(asked.models, request, scales, on_progress),
        lambda found: [refusal_table(found.reports, found.failures)],
        lambda title, found, run: render(title, found.reports, found.failures, run),
        title=f"What is refused of {asked.page.subject}",
        method=lambda run: METHOD,
        wrong=_misjudged,
    )


def _misjudged(reports: Sequence[RefusalReport]) -> str:
    names = ", ".join(one.name for one in reports if not one.right)
    return names and f"judged wrongly: {names}"
