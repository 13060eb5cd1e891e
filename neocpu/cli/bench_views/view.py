"""What every view but latency does: measure, print, write, and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neocpu.cli.bench_views.arguments import Asked
from neocpu.cli.bench_views.page import (
    Collected,
    collect,
    conclude,
    fail,
    show,
    write,
    write_html,
)
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.progress import ProgressCallback

if TYPE_CHECKING:
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.table import Table
    from neocpu.plan.result_pages.parts import Part


def report(
    terminal: Terminal,
    asked: Asked,
    measure: Callable[[ProgressCallback], Iterable[Any]],
    tables: Callable[[Collected[Any]], Sequence[Table]],
    render: Callable[[str, Collected[Any], Run], str],
    *,
    title: str,
    method: Callable[[Run], str],
    amend: Callable[[Run], Run] = lambda run: run,
    summary: Callable[[Sequence[Any]], Mapping[str, Any]] = lambda reports: {},
    wrong: Callable[[Sequence[Any]], str] = lambda reports: "",
    pictures: Callable[[Sequence[Any]], Sequence[Part]] = lambda reports: (),
) -> int:
    """Measure models and say what came out.

    Parameters
    ----------
    measure : callable
        Yields a report or a `ModelFailure` of each model.
    tables : callable
        What is printed.
    render : callable
        Return the document of a title; called if one is asked for.
    title : str
        Of the document, and of a page for a browser.
    method : callable
        Return how it was measured, for that page.
    amend : callable
        Called once models were measured; adds to how and where that was what the view knows of it.
    summary : callable
        Return what the reports say together, for the JSON document.
    wrong : callable
        Return what the reports show to be wrong, or "". It may raise an error instead.
    pictures : callable
        Return the charts of that page.

    Returns
    -------
    int
        The exit code.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted, once what there is has been printed and drawn.
    """
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.machine import describe

    found = collect(terminal, asked.models, measure)
    page = asked.page
    run = amend(Run(page.line, describe(), (), (asked.known.threads,), 0))
    document = {
        "command": run.command,
        "machine": run.machine.to_json(),
        "results": [each.to_json() for each in found.reports],
        "failures": [failure.to_json() for failure in found.failures],
        **summary(found.reports),
    }

    def save() -> None:
        if page.output is not None:
            write(terminal, page.output, render(title, found, run))

    def draw() -> None:
        if page.html is not None:
            charts = pictures(found.reports)
            write_html(
                terminal,
                page,
                title,
                run,
                method(run),
                tables(found),
                charts,
                interrupted=found.interrupted,
            )

    conclude(
        terminal,
        found,
        document,
        lambda: show(tables(found), markdown=page.markdown),
        save,
        draw,
    )
    if words := wrong(found.reports):
        failed = "".join(f"; {failure.name} failed" for failure in found.failures)
        return terminal.fail(words + failed, AccuracyError.exit_code)
    return fail(terminal, found) if found.failures else 0
