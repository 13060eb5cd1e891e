"""``neocpu bench`` by default: latencies, of models or artifacts, beside other engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.cli import bench_page
from neocpu.cli.bench_page import Page
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    from neocpu.bench.document import Run
    from neocpu.bench.report import SuiteReport
    from neocpu.bench.suite import Request
    from neocpu.bench.tables import Table


def measure(terminal: Terminal, models: Sequence[str], request: Request, page: Page) -> int:
    """Measure, print and write; return the exit code.

    Parameters
    ----------
    models : sequence of str
        ``.onnx`` files, built-in names or artifacts.
    request : Request
        Its peers need not be installed.
    """
    from neocpu.bench.document import Run
    from neocpu.bench.machine import describe
    from neocpu.bench.report import SuiteReport
    from neocpu.bench.suite import measure_models

    _check_page(terminal, page, request)
    asked = request.peers
    request = replace(request, peers=bench_page.available(terminal, asked))
    missing = tuple(peer for peer in asked if peer not in request.peers)
    _warn_of_few(terminal, request)
    run = Run(page.line, describe(), request.peers, request.threads, request.rounds, missing)
    found = bench_page.collect(
        terminal, models, lambda on_progress: measure_models(models, request, on_progress)
    )
    report = SuiteReport(found.reports, found.failures)
    document = {
        "command": run.command,
        "machine": run.machine.to_json(),
        "not_installed": run.missing,
        **report.to_json(),
    }
    bench_page.conclude(
        terminal,
        found,
        document,
        lambda: bench_page.show(_tables(report, run, page), markdown=page.markdown),
        lambda: _write(terminal, report, run, page),
    )
    if found.failures:
        return bench_page.fail(terminal, found)
    wrong = [model.name for model in report.models if model.own and not model.own.agrees]
    if wrong:
        words = f"wrong outputs of neocpu: {', '.join(wrong)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0


def _warn_of_few(terminal: Terminal, request: Request) -> None:
    from neocpu.bench.statistics import ENOUGH_ROUNDS

    several = request.peers or len(request.threads) > 1 or request.ablation or request.untuned
    if several and request.rounds < ENOUGH_ROUNDS:
        terminal.note(
            f"--rounds {request.rounds}: with fewer than {ENOUGH_ROUNDS} the 95 % intervals are "
            "too narrow"
        )


def _check_page(terminal: Terminal, page: Page, request: Request) -> None:
    """Find out what cannot be written before minutes are spent on measuring."""
    from neocpu.bench import chart
    from neocpu.foundation.files import check_destination

    bench_page.check_document(page.output)
    if page.chart is not None:
        chart.check_suffix(page.chart)
        if not request.peers and len(request.threads) == 1:
            raise UsageError("--chart compares: name engines with --vs, or several --threads")
    paths = _chart_paths(page)
    for path in paths:
        check_destination(path)
    if paths and not chart.available():
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")


def _chart_paths(page: Page) -> tuple[Path, ...]:
    """Return where charts go: beside the document too."""
    beside = (page.output.with_suffix(".svg"),) if page.output else ()
    return (*beside, *((page.chart,) if page.chart else ()))


def _write(terminal: Terminal, report: SuiteReport, run: Run, page: Page) -> None:
    """Write document and charts, as far as there is something to draw."""
    from neocpu.bench import chart, document

    drawn = {}
    if chart.available():
        for path in _chart_paths(page):
            drawn[path] = chart.draw(path, report.models, run.machine, run.threads)
            for file in drawn[path].values():
                terminal.note(f"written: {file}")
            if not drawn[path]:
                terminal.note(f"not drawn, as no peer has a result: {path}")
    if page.output is not None:
        beside = drawn.get(page.output.with_suffix(".svg"), {})
        links = {words: path.name for words, path in beside.items()}
        text = document.render(f"Benchmark of {page.subject}", report, run, links)
        bench_page.write(terminal, page.output, text)


def _tables(report: SuiteReport, run: Run, page: Page) -> list[Table]:
    from neocpu.bench import suite_tables

    names = {model.name for model in report.models} | {one.name for one in report.failures}
    if report.models and len(names) == 1:
        return suite_tables.model_tables(report.models[0])
    tables = suite_tables.tables(report, run.peers)
    return tables + suite_tables.details(report.models) if page.markdown else tables
