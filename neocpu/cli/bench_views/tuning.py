"""``neocpu bench tuning``: the tuning of models, by every search strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models
from neocpu.cli.bench_views.page import Known, Page, note_missing_charts
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.progress import ProgressCallback

if TYPE_CHECKING:
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.failure import ModelFailure
    from neocpu.bench.tuning.strategy_race import RaceReport


EPILOG = """\b
Examples:
  neocpu bench tuning resnet50 --db tuned.jsonl -o tuning.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models
@options.threads
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="The runs of each strategy.",
)
def command(terminal: Terminal, asked: Asked, seeds: int) -> int:
    """Compare the strategies of neocpu tune: minutes for each MODEL.

    From nothing and, with --db, from the records of other models.
    """
    from neocpu.bench.tuning.strategy_curves import race_chart
    from neocpu.bench.tuning.strategy_tables import METHOD, tables
    from neocpu.plan.result_pages.parts import chosen

    note_missing_charts(terminal, asked.page.output)
    return report(
        terminal,
        asked,
        lambda on_progress: _race(asked.models, asked.known, seeds, on_progress),
        lambda found: [table for one in found.reports for table in tables(one)],
        lambda title, found, run: _draw_and_render(terminal, title, found.reports, run, asked.page),
        pictures=lambda reports: chosen(list(map(race_chart, reports)), "model"),
        title=f"Tuning of {asked.page.subject}",
        method=lambda run: METHOD,
    )


def _race(
    models: Sequence[str], known: Known, seeds: int, on_progress: ProgressCallback
) -> Iterator[RaceReport | ModelFailure]:
    from neocpu.bench.tuning.strategy_race import RaceOptions, race_models
    from neocpu.schedules import registry
    from neocpu.schedules.vocabulary.target import host_target
    from neocpu.search.measuring.local_measurer import LocalMeasurer
    from neocpu.tuning_db.store import Store

    history = Store.open(known.databases, None, registry.template_version)
    target = host_target()
    return race_models(
        models,
        known.shapes,
        target,
        known.threads,
        RaceOptions(seeds, tuple(history)),
        partial(LocalMeasurer, target, known.threads),
        on_progress,
    )


def _draw_and_render(
    terminal: Terminal, title: str, reports: Sequence[RaceReport], run: Run, page: Page
) -> str:
    """Return the document, and draw the charts that it shows beside it."""
    from neocpu.bench.results import chart
    from neocpu.bench.tuning.strategy_tables import render
    from neocpu.bench.tuning.tuning_chart import draw_race

    charts = {}
    if page.output is not None and chart.available():
        for report in reports:
            path = page.output.with_name(f"{page.output.stem}-{report.model}.svg")
            draw_race(path, report, chart.caption(run.machine, run.threads))
            charts[f"Tuning of {report.model}"] = path.name
            terminal.note(f"written: {path}")
    return render(title, reports, run, charts)
