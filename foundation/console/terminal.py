"""Printing by commands: results on standard output, all else on standard error.

Everything for a terminal goes through `echo`, so that no name in a model or file can act on it. The
linter bans ``print`` from the other modules of this folder.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

from neocpu.foundation.plain_text import plain
from neocpu.foundation.progress import ProgressCallback

PLAIN_WIDTH: Final = 1000
"""Columns of a table that is not shown on a terminal, so that nothing is wrapped or cut."""

KINDS: Final = {
    1: "bug",
    2: "usage",
    3: "model",
    4: "unsupported",
    5: "target",
    6: "accuracy",
    7: "database",
    8: "artifact",
    129: "terminated",
    130: "interrupted",
    143: "terminated",
}
"""The kind of an error in ``--json``, by exit code."""


def echo(*lines: str, error: bool = False) -> None:
    """Print lines to standard output or error, unprintable characters and line ends escaped."""
    text = "\n".join(map(plain, lines))
    print(text, file=sys.stderr if error else sys.stdout, flush=error)


class PlainFormatter(logging.Formatter):
    """Formats each message as one line, escaped as by `echo`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))


def log_warnings() -> None:
    """Turn libraries' warnings into log messages, which ``--verbose`` shows.

    With ``python -W error`` they are still errors.
    """
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    place = f"{category.__name__} in {filename}, line {lineno}"
    logging.getLogger("neocpu").info("%s: %s", place, " ".join(str(message).split()))


@dataclass(slots=True, kw_only=True)
class Terminal:
    """The options of every command, and printing that obeys them.

    `quiet`: whether progress, notes, warnings and summaries are left out. `verbose`: 1 shows
    informative log messages, 2 also debugging ones. `kept`: a function that says after Ctrl-C which
    part of the work is not lost.
    """

    json: bool = False
    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    kept: Callable[[], str] = lambda: "nothing was written"
    answered: bool = False

    def start_logging(self) -> None:
        """Send the package's log messages to standard error, at the level of the options."""
        level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(self.verbose, 2)]
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(PlainFormatter("neocpu: %(levelname)s: %(message)s"))
        logger = logging.getLogger("neocpu")
        logger.handlers[:] = [handler]
        logger.setLevel(logging.ERROR if self.quiet else level)

    def progress(self) -> AbstractContextManager[ProgressCallback]:
        """Return a context that shows the progress reported to its callback."""
        from neocpu.foundation.console.progress_line import show_progress

        return show_progress(sys.stderr, quiet=self.quiet)

    def note(self, text: str) -> None:
        """Print a line for people to standard error."""
        if not self.quiet:
            echo(f"neocpu: {text}", error=True)

    def result(self, document: Mapping[str, Any], show: Callable[[], None]) -> None:
        if self.json:
            self._print_document(document)
        else:
            show()

    def fail(self, message: str, code: int) -> int:
        """Print an error in one line, with ``--json`` as a document too; return its exit code.

        A command that has already printed its document, such as a server, prints no second one.
        """
        if self.debug and sys.exc_info()[0] is not None:
            echo(*traceback.format_exc().splitlines(), error=True)
        line = plain(" ".join(message.split()))
        echo(f"neocpu: error: {line}", error=True)
        if self.json and not self.answered:
            self._print_document(
                {"error": {"message": line, "exit_code": code, "kind": KINDS[code]}}
            )
        return code

    def _print_document(self, document: Mapping[str, Any]) -> None:
        # In ASCII, because JSON allows characters that a terminal acts on: U+202E and U+009B.
        print(json.dumps(document, allow_nan=False), flush=True)
        self.answered = True


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print aligned ``name  value`` lines."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        echo(f"  {name:<{width}}  {value}")


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    bold: Container[tuple[int, int]] = (),
) -> None:
    """Print an aligned table.

    `right`: titles of the columns that are aligned to the right. `bold`: row and column of cells to
    emphasise, if the terminal can.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Not directly to standard output: rich would end the process if a pipe's reader went away.
    shown, tty = io.StringIO(), sys.stdout.isatty()
    console = Console(file=shown, force_terminal=tty, width=None if tty else PLAIN_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in header:
        # Folded if the terminal is narrow, because a shortened name is of no use.
        justify: Literal["left", "right"] = "right" if title in right else "left"
        table.add_column(Text(plain(title)), justify=justify, overflow="fold")
    for number, row in enumerate(rows):
        # Text, not markup: a layout such as NCHW[16]c looks like a tag.
        cells = (
            Text(plain(cell), "bold" if (number, column) in bold else "")
            for column, cell in enumerate(row)
        )
        table.add_row(*cells)
    console.print(table)
    # Not escaped again: rich's codes make cells bold.
    print("\n".join(line.rstrip() for line in shown.getvalue().splitlines()))
