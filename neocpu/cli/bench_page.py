"""What the comparisons of ``neocpu bench`` have in common: their options, tables and document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.cli.terminal import Terminal, print_table
from neocpu.schedules.errors import UsageError

if TYPE_CHECKING:
    from neocpu.bench.tables import Table


@dataclass(frozen=True, slots=True)
class Page:
    """Where the results of a comparison of searches go, and what stands above them.

    Attributes
    ----------
    subject : str
        What was compared on: ``the paper suite``, or names of models.
    line : str
        The command line.
    output : Path or None
        The document.
    markdown : bool
        Print tables in Markdown.
    """

    subject: str
    line: str
    output: Path | None
    markdown: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What a comparison of searches starts from.

    Attributes
    ----------
    databases : tuple of Path
        Tuning databases.
    shapes : mapping of str to tuple of int
        Complete shapes of inputs with dynamic dimensions.
    """

    threads: int
    databases: tuple[Path, ...]
    shapes: Mapping[str, tuple[int, ...]]


def check(flag: str, models: Sequence[str], output: Path | None, unrelated: Sequence[str]) -> None:
    """Find out what does not go with a comparison of searches before it begins.

    Parameters
    ----------
    flag : str
        The option that asked for the comparison.
    unrelated : sequence of str
        Options that were given and that measure or draw latencies.

    Raises
    ------
    UsageError
    """
    from neocpu.bench.suite import is_artifact

    if unrelated:
        raise UsageError(f"{flag} runs no model: leave out {', '.join(unrelated)}")
    for model in models:
        if is_artifact(model):
            raise UsageError(f"{flag} needs a MODEL: {model} holds a plan, not its choices")
    check_document(output)


def check_document(output: Path | None) -> None:
    """Find out that the document cannot be written before minutes are spent on measuring."""
    from neocpu.link import check_destination

    if output is None:
        return
    if output.suffix != ".md":
        raise UsageError(f"-o {output}: the document is Markdown; name a FILE.md")
    check_destination(output)


def show(tables: Sequence[Table], *, markdown: bool) -> None:
    """Print tables."""
    if markdown:
        print("\n".join(table.markdown() for table in tables), end="")
        return
    for number, table in enumerate(tables):
        print(table.title if number == 0 else f"\n{table.title}")
        print_table(table.header, table.rows, right=table.header[1:], bold=table.bold)
        for note in table.notes:
            print(f"  {note}")


def write(terminal: Terminal, path: Path, text: str) -> None:
    """Write the document."""
    from neocpu.link import replacing

    data = text.encode()
    with replacing(path, len(data)) as stream:
        stream.write(data)
    terminal.note(f"written: {path}")
