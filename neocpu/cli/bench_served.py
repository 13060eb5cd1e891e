"""``neocpu bench --served``: a server under load, beside direct calls."""

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
    clients: tuple[int, ...],
    duration: float,
) -> int:
    """Serve, print and write; return the exit code.

    Parameters
    ----------
    models : sequence of str
        Artifacts.
    clients : tuple of int
        How many at once, one number after another.
    duration : float
        Seconds for each artifact.
    """
    from neocpu.bench.served import ServedRequest, measure_served
    from neocpu.bench.served_tables import render, served_table

    request = ServedRequest(clients, duration, known.threads)
    found = collect(
        terminal, models, lambda on_progress: measure_served(models, request, on_progress)
    )
    run = run_of(page, known)
    present(
        terminal,
        found,
        run,
        page,
        [served_table(found.reports)],
        lambda _: render(f"{page.subject}, served", found.reports, run),
    )
    if found.failures:
        return fail(terminal, found)
    wrong = [report.name for report in found.reports if report.wrong]
    if wrong:
        words = f"requests failed or gave other outputs: {', '.join(wrong)}"
        return terminal.fail(words, AccuracyError.exit_code)
    return 0
