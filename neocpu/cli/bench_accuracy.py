"""``neocpu bench --accuracy``: how far networks' outputs are from the truth."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.cli.bench_page import Known, Page, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import AccuracyError


def compare(
    terminal: Terminal,
    models: Sequence[str],
    known: Known,
    page: Page,
    scales: tuple[float, ...] | None,
) -> int:
    """Compile, run, print and write; return the exit code.

    Parameters
    ----------
    scales : tuple of float, optional
        Find out what is refused of scaled networks instead of how exact each level is.
    """
    if scales is not None:
        return _refusals(terminal, models, known, page, scales)
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


def _refusals(
    terminal: Terminal,
    models: Sequence[str],
    known: Known,
    page: Page,
    scales: tuple[float, ...],
) -> int:
    from neocpu.bench.accuracy import AccuracyRequest
    from neocpu.bench.refusal_tables import refusal_table, render
    from neocpu.bench.refusals import measure_refusals

    request = AccuracyRequest(known.threads, known.databases, known.shapes)
    found = collect(
        terminal, models, lambda on_progress: measure_refusals(models, request, scales, on_progress)
    )
    reports, failures = found.reports, found.failures
    run = run_of(page, known)
    title = f"What is refused of {page.subject}"
    present(
        terminal,
        found,
        run,
        page,
        [refusal_table(reports, failures)],
        lambda _: render(title, reports, failures, run),
    )
    wrong = [report.name for report in reports if not report.right]
    if wrong:
        return terminal.fail(f"judged wrongly: {', '.join(wrong)}", AccuracyError.exit_code)
    return fail(terminal, found) if failures else 0
