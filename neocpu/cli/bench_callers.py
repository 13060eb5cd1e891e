"""``neocpu bench --callers``: many threads calling one module."""

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
    *,
    callers: int,
    duration: float,
) -> int:
    """Call, print and write; return the exit code.

    Parameters
    ----------
    models : sequence of str
        Artifacts.
    duration : float
        Seconds for each.
    """
    from neocpu.bench.callers import CallersRequest, measure_callers
    from neocpu.bench.callers_tables import callers_table, render

    request = CallersRequest(callers, duration, known.threads)
    found = collect(
        terminal, models, lambda on_progress: measure_callers(models, request, on_progress)
    )
    run = run_of(page, known)
    present(
        terminal,
        found,
        run,
        page,
        [callers_table(found.reports)],
        lambda _: render(f"Many callers of {page.subject}", found.reports, run),
    )
    if found.failures:
        return fail(terminal, found)
    unsound = [report.name for report in found.reports if not report.sound]
    if unsound:
        words = f"calls failed, changed affinities or gave other outputs: {', '.join(unsound)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0
