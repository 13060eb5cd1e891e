"""What the views of ``neocpu bench`` have in common: one model after another, tables, documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from neocpu.foundation.console.terminal import Terminal, echo, print_table
from neocpu.foundation.errors import NeoCPUError, UsageError, did_you_mean
from neocpu.foundation.files import check_destination
from neocpu.foundation.progress import ProgressCallback
from neocpu.foundation.units import plural
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.plan.text.page_file import check_page_file, write_page_file

if TYPE_CHECKING:
    from neocpu.bench.results.document import Run
    from neocpu.bench.results.failure import ModelFailure
    from neocpu.bench.results.table import Table
    from neocpu.plan.result_pages.parts import Part

Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class Page:
    """Where results go, and what stands above them.

    Attributes
    ----------
    subject : str
        What was measured: ``the paper suite``, or names of models.
    line : str
        The command line.
    output, chart : Path or None
        The document, and a chart by itself.
    html : Path or None
        A page for a browser.
    markdown : bool
        Print tables in Markdown.
    """

    subject: str
    line: str
    output: Path | None
    chart: Path | None
    html: Path | None
    markdown: bool

    @property
    def beside(self) -> Path | None:
        """Where the document's chart goes."""
        return None if self.output is None else self.output.with_suffix(".svg")


@dataclass(frozen=True, slots=True)
class Collected(Generic[Report]):
    """What came of the models, and whether Ctrl-C ended it."""

    models: Sequence[str]
    reports: tuple[Report, ...]
    failures: tuple[ModelFailure, ...]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What such a view starts from.

    Attributes
    ----------
    databases : tuple of Path
        Tuning databases.
    shapes : InputShapes
    """

    threads: int
    databases: tuple[Path, ...]
    shapes: InputShapes


def collect(
    terminal: Terminal,
    models: Sequence[str],
    measure: Callable[[ProgressCallback], Iterable[Report | ModelFailure]],
) -> Collected[Report]:
    """Go through what ``measure`` yields of ``models``, until it ends or is interrupted."""
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


def conclude(
    terminal: Terminal,
    found: Collected[Any],
    document: Mapping[str, Any],
    show: Callable[[], None],
    write: Callable[[], None],
    draw: Callable[[], None],
) -> None:
    """Print the results as JSON or by ``show``, and put them into files.

    Parameters
    ----------
    write : callable
        Write the document and charts: not of what was interrupted.
    draw : callable
        Write the page for a browser.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted, once what there is has been printed and drawn.
    """
    if found.reports or len(found.models) > 1:
        terminal.result(document, show)
    if found.reports and not found.interrupted:
        write()
    if found.reports:
        draw()
    if found.interrupted:
        done = f"{len(found.reports)} of {plural(len(found.models), 'model')} measured"
        terminal.kept = lambda: done
        raise KeyboardInterrupt


def fail(terminal: Terminal, found: Collected[Any]) -> int:
    """Report failures, of a single model as its own error, else by name; return the exit code."""
    first = found.failures[0].error
    if len(found.models) == 1:
        raise first
    names = ", ".join(dict.fromkeys(failure.name for failure in found.failures))
    code = first.exit_code if isinstance(first, NeoCPUError) else 1
    return terminal.fail(f"{names} failed; the other results stand", code)


def available(terminal: Terminal, peers: Sequence[str]) -> tuple[str, ...]:
    """Return the peers that are installed, and say how to install the others."""
    from neocpu.bench.engines.engines import PEERS, install_hint, installed

    for peer in peers:
        if peer not in PEERS:
            hint = did_you_mean(peer, PEERS)
            raise UsageError(f"no engine '{peer}' for --vs; known: {', '.join(PEERS)}{hint}")
    for peer in peers:
        if not installed(peer):
            terminal.note(f"{peer} is not installed, skipped: {install_hint(peer)}")
    return tuple(dict.fromkeys(peer for peer in peers if installed(peer)))


def check_files(page: Page, others: Sequence[str | Path]) -> None:
    """Find out that something cannot be written before minutes are spent on measuring.

    Parameters
    ----------
    others : sequence of str or Path
        What must not be written over: see `refuse_overwriting`.

    Raises
    ------
    UsageError, ArtifactError
        If that is so, or would be written over others.
    """
    if page.output is not None and page.output.suffix != ".md":
        raise UsageError(f"-o {page.output}: the document is Markdown; name a FILE.md")
    for path, option in ((page.output, "-o"), (page.beside, "-o"), (page.chart, "--chart")):
        check_destination(path, option, others)
    check_page_file(page.html, (*others, page.output, page.beside, page.chart))


def write_html(
    terminal: Terminal,
    page: Page,
    title: str,
    run: Run,
    method: str,
    tables: Sequence[Table],
    pictures: Sequence[Part],
    *,
    interrupted: bool,
) -> None:
    """Write the page for a browser, if one is asked for.

    Parameters
    ----------
    method : str
        How it was measured.
    pictures : sequence of Part
        Charts of what the tables say.
    interrupted : bool
        Whether it is of what had been measured when that was ended: the title says so.
    """
    from neocpu.bench.results.bench_page import bench_page

    if page.html is not None:
        title += ", interrupted" if interrupted else ""
        write_page_file(terminal, page.html, bench_page(title, run, method, tables, pictures))


def note_missing_charts(terminal: Terminal, *paths: Path | None) -> None:
    """Say that no charts are drawn, if they would go there or beside that and cannot be."""
    from neocpu.bench.results import chart

    if any(paths) and not chart.available():
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
