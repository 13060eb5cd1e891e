"""``neocpu bench --strategies``: the tuning of models, by every search strategy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.cli.bench_page import Known, Page, show, write
from neocpu.cli.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.document import Run
    from neocpu.bench.strategy_race import RaceReport


def compare(terminal: Terminal, models: Sequence[str], known: Known, seeds: int, page: Page) -> int:
    """Tune, print and write; return the exit code.

    Parameters
    ----------
    known : Known
        Its databases are those the warm runs learn from.
    seeds : int
        Runs of each strategy.
    """
    from neocpu.bench.document import Run
    from neocpu.bench.machine import describe
    from neocpu.bench.strategy_tables import tables

    run = Run(page.line, describe(), (), (known.threads,), 0)
    reports = _race(terminal, models, known, seeds)
    document = {
        "command": page.line,
        "machine": run.machine.to_json(),
        "results": [report.to_json() for report in reports],
    }
    found = [table for report in reports for table in tables(report)]
    terminal.result(document, lambda: show(found, markdown=page.markdown))
    if page.output is not None:
        _write(terminal, reports, run, page.subject, page.output)
    return 0


def _race(terminal: Terminal, models: Sequence[str], known: Known, seeds: int) -> list[RaceReport]:
    from neocpu.bench.strategy_race import RaceOptions, race
    from neocpu.compiler import convolutions
    from neocpu.schedules import registry
    from neocpu.schedules.target import host_target
    from neocpu.search.local_measurer import LocalMeasurer
    from neocpu.tuning_db.store import Store

    history = Store.open(known.databases, None, registry.template_version)
    options = RaceOptions(seeds, tuple(history))
    target, threads = host_target(), known.threads
    measurers = partial(LocalMeasurer, target, threads)
    reports = []
    with terminal.progress() as on_progress:
        for model in models:
            found = convolutions(model, known.shapes)
            name = Path(model).stem
            reports.append(race(name, found, target, threads, options, measurers, on_progress))
    return reports


def _write(
    terminal: Terminal, reports: Sequence[RaceReport], run: Run, subject: str, output: Path
) -> None:
    from neocpu.bench import chart
    from neocpu.bench.strategy_tables import render

    charts = {}
    if chart.available():
        for report in reports:
            path = output.with_name(f"{output.stem}-{report.model}.svg")
            chart.draw_race(path, report, chart.caption(run.machine, run.threads))
            charts[f"Tuning of {report.model}"] = path.name
            terminal.note(f"written: {path}")
    else:
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")
    write(terminal, output, render(f"Tuning of {subject}", reports, run, charts))
