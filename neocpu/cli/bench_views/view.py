"""The steps of every view: measure, print, write, and judge."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from neocpu.cli.bench_views.arguments import Asked
from neocpu.cli.bench_views.page import Collected, Page, collect, fail, show, write
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.progress import ProgressCallback
from neocpu.foundation.units import plural
from neocpu.plan.text.page_file import write_page_file

if TYPE_CHECKING:
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.presentation import Presentation


def report(
    terminal: Terminal,
    asked: Asked,
    measure: Callable[[ProgressCallback], Iterable[Any]],
    present: Callable[[Collected[Any], Run], Presentation],
    *,
    title: str,
    amend: Callable[[Run], Run] = lambda run: run,
    summary: Callable[[Collected[Any]], Mapping[str, Any]] = lambda found: {},
    wrong: Callable[[Collected[Any]], str] = lambda found: "",
) -> int:
    """Measure models and show the results.

    measure: a function that yields a report or a `ModelFailure` of each model.
    present: a function that returns the tables and figures to show.
    title: the title of the document, and of the page.
    amend: a function that adds the view's own facts to the run.
    summary: a function that returns further entries of the JSON document.
    wrong: a function that returns a message about wrong outputs in the reports, or "".
    Returns: the exit code.
    Raises KeyboardInterrupt: the measurement was interrupted; the results so far have been printed
    and drawn.
    """
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.presentation import page
    from neocpu.foundation.machine.machine_info import describe

    found = collect(terminal, asked.models, measure)
    run = Run(
        command=asked.page.line,
        machine=describe(),
        peers=(),
        threads=(asked.known.threads,),
        rounds=0,
    )
    run = amend(run)
    document = {
        "command": run.command,
        "machine": asdict(run.machine),
        "results": [each.to_json() for each in found.reports],
        "failures": [failure.to_json() for failure in found.failures],
        **summary(found),
    }
    if found.reports or len(found.models) > 1:
        shown = functools.cache(lambda: present(found, run))
        terminal.result(document, lambda: show(shown().tables, markdown=asked.page.markdown))
        # The document of an earlier run is worth more than that of an interrupted run.
        if found.reports and not found.interrupted:
            _write_document(terminal, asked.page, title, run, shown())
        if found.reports and asked.page.html is not None:
            heading = f"{title}, interrupted" if found.interrupted else title
            write_page_file(terminal, asked.page.html, page(heading, run, shown()))
    if found.interrupted:
        done = f"{len(found.reports)} of {plural(len(found.models), 'model')} measured"
        terminal.kept = lambda: done
        raise KeyboardInterrupt
    if words := wrong(found):
        failed = "".join(f"; {failure.name} failed" for failure in found.failures)
        return terminal.fail(words + failed, AccuracyError.exit_code)
    return fail(terminal, found) if found.failures else 0


def _write_document(
    terminal: Terminal, page: Page, title: str, run: Run, shown: Presentation
) -> None:
    """Write the document, the charts beside it, and the separate chart if it is requested."""
    from neocpu.bench.results import chart
    from neocpu.bench.results.presentation import document

    links = {}
    if chart.available():
        for path in page.charts:
            for figure in shown.figures:
                file = chart.draw(figure, path)
                terminal.note(f"written: {file}")
                if path == page.beside:
                    links[figure.words] = file.name
            if not shown.figures and shown.undrawn:
                terminal.note(f"not drawn, as {shown.undrawn}: {path}")
    if page.output is not None:
        write(terminal, page.output, document(title, run, shown, links))
