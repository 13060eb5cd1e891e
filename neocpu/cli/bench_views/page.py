"""The common parts of the views of ``neocpu bench``: models one by one, tables, documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from neocpu.foundation.console.terminal import Terminal, echo, print_table
from neocpu.foundation.errors import NeoCPUError, UsageError, did_you_mean
from neocpu.foundation.files import check_destination
from neocpu.foundation.progress import ProgressCallback
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.plan.text.page_file import check_page_file

if TYPE_CHECKING:
    from neocpu.bench.results.failure import ModelFailure
    from neocpu.bench.results.table import Table

Report = TypeVar("Report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The files of the results, and the words above them."""

    models: str  # the models in words: ``the paper suite``, or their names
    line: str  # the command line
    # The document, and a separate chart.
    output: Path | None
    chart: Path | None
    html: Path | None  # a page for a browser
    markdown: bool  # whether to print tables in Markdown

    @property
    def beside(self) -> Path | None:
        """The file of the document's chart."""
        return None if self.output is None else self.output.with_suffix(".svg")

    @property
    def charts(self) -> tuple[Path, ...]:
        """The files of charts: the document's, and the separate one."""
        return tuple(path for path in (self.beside, self.chart) if path is not None)


@dataclass(frozen=True, slots=True)
class Collected(Generic[Report]):
    """The results of the models, and whether Ctrl-C ended the measurement."""

    models: Sequence[str]
    reports: tuple[Report, ...]
    failures: tuple[ModelFailure, ...]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Known:
    """The common options of views."""

    threads: int
    databases: tuple[Path, ...]  # tuning databases
    shapes: InputShapes


def collect(
    terminal: Terminal,
    models: Sequence[str],
    measure: Callable[[ProgressCallback], Iterable[Report | ModelFailure]],
) -> Collected[Report]:
    """Collect the reports and failures of ``models`` until ``measure`` ends or is interrupted."""
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


def fail(terminal: Terminal, found: Collected[Any]) -> int:
    """Raise the error of a single model, or name the models that failed; return the exit code."""
    first = found.failures[0].error
    if len(found.models) == 1:
        raise first
    names = ", ".join(dict.fromkeys(failure.name for failure in found.failures))
    code = first.exit_code if isinstance(first, NeoCPUError) else 1
    return terminal.fail(f"{names} failed; the other results stand", code)


def available(terminal: Terminal, peers: Sequence[str]) -> tuple[str, ...]:
    """Return the peers that are installed, and print how to install the others."""
    from neocpu.foundation.peers import PEERS, install_hint, installed

    for peer in peers:
        if peer not in PEERS:
            hint = did_you_mean(peer, PEERS)
            raise UsageError(f"no engine '{peer}' for --vs; known: {', '.join(PEERS)}{hint}")
    for peer in peers:
        if not installed(peer):
            terminal.note(f"{peer} is not installed, skipped: {install_hint(peer)}")
    return tuple(dict.fromkeys(peer for peer in peers if installed(peer)))


def check_files(page: Page, others: Sequence[str | Path]) -> None:
    """Check that all files can be written, before minutes are spent on measuring.

    others: the files that must not be overwritten: see `refuse_overwriting`.
    Raises UsageError or ArtifactError: a file cannot be written, or would overwrite another.
    """
    if page.output is not None and page.output.suffix != ".md":
        raise UsageError(f"-o {page.output}: the document is Markdown; name a FILE.md")
    for path, option in ((page.output, "-o"), (page.beside, "-o"), (page.chart, "--chart")):
        check_destination(path, option, others)
    check_page_file(page.html, (*others, page.output, page.beside, page.chart))


def note_missing_charts(terminal: Terminal, page: Page) -> None:
    """Print a note if charts are requested but cannot be drawn."""
    from neocpu.bench.results import chart

    if page.charts and not chart.available():
        terminal.note(f"matplotlib is not installed, no charts: {chart.INSTALL_HINT}")


def show(tables: Sequence[Table], *, markdown: bool) -> None:
    """Print tables."""
    if markdown:
        echo(*"\n".join(table.markdown() for table in tables).splitlines())
        return
    for number, table in enumerate(tables):
        echo(*([""] if number else []), table.title)
        print_table(table.header, table.rows, right=table.header[1:], bold=table.bold)
        for note in table.notes:
            echo(f"  {note}")


def write(terminal: Terminal, path: Path, text: str) -> None:
    """Write the document."""
    from neocpu.foundation.files import replacing

    data = text.encode()
    with replacing(path, len(data)) as stream:
        stream.write(data)
    terminal.note(f"written: {path}")
