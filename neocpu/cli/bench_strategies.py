"""``neocpu bench --strategies``: the tuning of models, by every search strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.cli.bench_page import Known, Page, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.progress import ProgressCallback

if TYPE_CHECKING:
    from neocpu.bench.document import Run
    from neocpu.bench.report import ModelFailure
    from neocpu.bench.strategy_race import RaceReport


def compare(
    terminal: Terminal, models: Sequence[str], known: Known, page: Page, *, seeds: int
) -> int:
    """Tune, print and write; return the exit code.

    Parameters
    ----------
    known : Known
        Its databases are those the warm runs learn from.
    seeds : int
        Runs of each strategy.
    """
    from neocpu.bench import chart
    from neocpu.bench.strategy_tables import tables

    if page.output is not None and not chart.available():
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")
    run = run_of(page, known)
    found = collect(terminal, models, lambda on_progress: _race(models, known, seeds, on_progress))
    present(
        terminal,
        found,
        run,
        page,
        [table for report in found.reports for table in tables(report)],
        lambda path: _draw_and_render(terminal, found.reports, run, page, path),
    )
    return fail(terminal, found) if found.failures else 0


def _race(
    models: Sequence[str], known: Known, seeds: int, on_progress: ProgressCallback
) -> Iterator[RaceReport | ModelFailure]:
    from neocpu.bench.strategy_race import RaceOptions, race_models
    from neocpu.schedules import registry
    from neocpu.schedules.vocabulary.target import host_target
    from neocpu.search.local_measurer import LocalMeasurer
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
    terminal: Terminal, reports: Sequence[RaceReport], run: Run, page: Page, output: Path
) -> str:
    """Draw the charts beside ``output`` and return the document that shows them."""
    from neocpu.bench import chart
    from neocpu.bench.strategy_tables import render

    charts = {}
    if chart.available():
        for report in reports:
            path = output.with_name(f"{output.stem}-{report.model}.svg")
            chart.draw_race(path, report, chart.caption(run.machine, run.threads))
            charts[f"Tuning of {report.model}"] = path.name
            terminal.note(f"written: {path}")
    return render(f"Tuning of {page.subject}", reports, run, charts)
