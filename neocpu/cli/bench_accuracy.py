"""``neocpu bench --accuracy``: how far networks' outputs are from the truth."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.cli.bench_page import Known, Page, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.schedules.errors import AccuracyError


def compare(terminal: Terminal, models: Sequence[str], known: Known, page: Page) -> int:
    """Compile, run, print and write; return the exit code."""
    from neocpu.bench.accuracy import AccuracyRequest, measure_accuracy
    from neocpu.bench.accuracy_tables import accuracy_table, render

    request = AccuracyRequest(known.threads, known.databases, known.shapes)
    found = collect(
        terminal, models, lambda on_progress: measure_accuracy(models, request, on_progress)
    )
    reports, failures = found.reports, found.failures
    run = run_of(page, known)
    title = f"Accuracy of {page.subject}"
    present(
        terminal,
        found,
        run,
        page,
        [accuracy_table(reports, failures)],
        lambda _: render(title, reports, failures, run),
    )
    missed = [f"{report.name} ({', '.join(report.missed)})" for report in reports if report.missed]
    if missed:
        words = f"less exact than promised: {', '.join(missed)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return fail(terminal, found) if failures else 0
