"""``neocpu bench --startup``: how soon artifacts serve, and what a second process costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neocpu.cli.bench_page import Known, Page, available, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal


def compare(
    terminal: Terminal,
    models: Sequence[str],
    known: Known,
    page: Page,
    *,
    peers: tuple[str, ...] | None,
    source: str | None,
    rounds: int,
) -> int:
    """Measure, print and write; return the exit code.

    Parameters
    ----------
    models : sequence of str
        Artifacts.
    peers : tuple of str or None
        Engines to compare with.
    source : str or None
        The model the artifact was compiled from, which they run.
    rounds : int
        Fresh processes of each engine.
    """
    from neocpu.bench.startup import StartupRequest, measure_startups, render, startup_table

    there = available(terminal, peers or ())
    request = StartupRequest(there, source, known.threads, rounds)
    found = collect(
        terminal, models, lambda on_progress: measure_startups(models, request, on_progress)
    )
    run = replace(run_of(page, known), peers=there, rounds=rounds)
    present(
        terminal,
        found,
        run,
        page,
        [startup_table(report) for report in found.reports],
        lambda _: render(f"Startup of {page.subject}", found.reports, run),
    )
    return fail(terminal, found) if found.failures else 0
