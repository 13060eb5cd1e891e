"""The steps of every view of ``neocpu bench``: measure, print, write, and judge."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from neocpu.foundation.console.terminal import Terminal, echo, print_table
from neocpu.foundation.errors import AccuracyError, NeoCPUError, UsageError, did_you_mean
from neocpu.foundation.files import check_destination, replacing
from neocpu.foundation.progress import ProgressCallback
from neocpu.foundation.units import plural
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.plan.text.page_file import check_page_file, write_page_file

if TYPE_CHECKING:
    from neocpu.bench.results.failure import ModelFailure
    from neocpu.bench.results.presentation import Presentation, Run
    from neocpu.bench.results.table import Table

Report = TypeVar("Report")
Request = TypeVar("Request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    models: str  # the models in words: ``the paper suite``, or their names
    line: str  # the command line
    output: Path | None  # the document
    chart: Path | None  # a separate chart
    html: Path | None  # a page for a browser
    markdown: bool  # whether to print tables in Markdown

    @property
    def beside(self) -> Path | None:
        return None if self.output is None else self.output.with_suffix(".svg")

    @property
    def charts(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.beside, self.chart) if path is not None)

    def check(self, others: Sequence[str | Path]) -> None:
        """Check that all files can be written, before minutes are spent on measuring.

        Raises UsageError or ArtifactError: a file is not writable, or is one of `others`.
        """
        if self.output is not None and self.output.suffix != ".md":
            raise UsageError(f"-o {self.output}: the document is Markdown; name a FILE.md")
        for path, option in ((self.output, "-o"), (self.beside, "-o"), (self.chart, "--chart")):
            check_destination(path, option, others)
        check_page_file(self.html, (*others, self.output, self.beside, self.chart))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    models: tuple[str, ...]  # ``.onnx`` files and built-in names, or artifacts
    threads: int
    databases: tuple[Path, ...]
    shapes: InputShapes
    page: Page


@dataclass(frozen=True, slots=True)
class Collected(Generic[Report]):
    """The results of the models, and whether Ctrl-C ended the measurement."""

    models: Sequence[str]
    reports: tuple[Report, ...]
    failures: tuple[ModelFailure, ...]
    interrupted: bool


def report(
    terminal: Terminal,
    asked: Asked,
    title: str,
    measure: Callable[[Sequence[str], Request, ProgressCallback], Iterable[Report | ModelFailure]],
    request: Request,
    present: Callable[[Collected[Report], Run], Presentation],
    *,
    peers: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
    threads: tuple[int, ...] | None = None,
    rounds: int = 0,
    summary: Callable[[Collected[Report]], Mapping[str, Any]] = lambda found: {},
    wrong: Callable[[Collected[Report]], str] = lambda found: "",
) -> int:
    """Measure models, show the results, and return the exit code.

    measure: yields a report or a `ModelFailure` of each model.
    summary: returns further entries of the JSON document.
    wrong: returns a message about wrong outputs in the reports, or "".
    Raises KeyboardInterrupt: after printing and drawing the results so far.
    """
    from neocpu.bench.results.presentation import Run, page
    from neocpu.foundation.machine.machine_info import describe

    found = _collect(terminal, asked.models, functools.partial(measure, asked.models, request))
    run = Run(
        command=asked.page.line,
        machine=describe(),
        peers=peers,
        threads=threads or (asked.threads,),
        rounds=rounds,
        missing=missing,
    )
    document = {
        "command": run.command,
        "machine": asdict(run.machine),
        "results": [each.to_json() for each in found.reports],  # type: ignore[attr-defined]
        "failures": [failure.to_json() for failure in found.failures],
        **summary(found),
    }
    if found.reports or len(found.models) > 1:
        shown = functools.cache(lambda: present(found, run))
        terminal.result(document, lambda: _show(shown().tables, markdown=asked.page.markdown))
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
    return _fail(terminal, found) if found.failures else 0


def _collect(
    terminal: Terminal,
    models: Sequence[str],
    measure: Callable[[ProgressCallback], Iterable[Report | ModelFailure]],
) -> Collected[Report]:
    from neocpu.bench.results.failure import ModelFailure

    reports: list[Report] = []
    failures: list[ModelFailure] = []
    interrupted = False
    try:
        with terminal.progress() as on_progress:
            for outcome in measure(on_progress):
                if isinstance(outcome, ModelFailure):
                    failures.append(outcome)
                else:
                    reports.append(outcome)
                if len(models) > 1:
                    terminal.note(str(outcome))
    except KeyboardInterrupt:
        interrupted = True
    return Collected(models, tuple(reports), tuple(failures), interrupted)


def _fail(terminal: Terminal, found: Collected[Any]) -> int:
    """Raise the error of a single model, or name the models that failed; return the exit code."""
    first = found.failures[0].error
    if len(found.models) == 1:
        raise first
    names = ", ".join(dict.fromkeys(failure.name for failure in found.failures))
    code = first.exit_code if isinstance(first, NeoCPUError) else 1
    return terminal.fail(f"{names} failed; the other results stand", code)


def available(terminal: Terminal, peers: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the peers that are installed and the others, and print how to install those."""
    from neocpu.foundation.peers import PEERS, install_hint, installed

    for peer in peers:
        if peer not in PEERS:
            hint = did_you_mean(peer, PEERS)
            raise UsageError(f"no engine '{peer}' for --vs; known: {', '.join(PEERS)}{hint}")
    missing = tuple(peer for peer in peers if not installed(peer))
    for peer in missing:
        terminal.note(f"{peer} is not installed, skipped: {install_hint(peer)}")
    return tuple(dict.fromkeys(peer for peer in peers if peer not in missing)), missing


def note_missing_charts(terminal: Terminal, page: Page) -> None:
    from neocpu.bench.results import chart

    if page.charts and not chart.available():
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")


def _show(tables: Sequence[Table], *, markdown: bool) -> None:
    if markdown:
        echo(*"\n".join(table.markdown() for table in tables).splitlines())
        return
    for number, table in enumerate(tables):
        echo(*([""] if number else []), table.title)
        print_table(table.header, table.rows, right=table.header[1:], bold=table.bold)
        for note in table.notes:
            echo(f"  {note}")


def _write_document(
    terminal: Terminal, page: Page, title: str, run: Run, shown: Presentation
) -> None:
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
        data = document(title, run, shown, links).encode()
        with replacing(page.output, len(data)) as stream:
            stream.write(data)
        terminal.note(f"written: {page.output}")
