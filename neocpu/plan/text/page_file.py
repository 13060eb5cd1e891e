"""Writing a page for a browser."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.files import check_destination, replacing
from neocpu.foundation.units import size

_OPTION = "--html"


def check_page_file(destination: Path | None, others: Iterable[str | Path | None] = ()) -> None:
    """Find out that a page cannot be written there before minutes are spent on what it shows.

    Parameters
    ----------
    others : iterable of str, Path or None
        What must not be written over: see `refuse_overwriting`.

    Raises
    ------
    UsageError, ArtifactError
        If it would be, or cannot be written.
    """
    check_destination(destination, _OPTION, others)


def write_page_file(terminal: Terminal, destination: Path, text: str) -> None:
    """Write a page, and say so.

    Raises
    ------
    UsageError, ArtifactError
        If it cannot be written.
    """
    data = text.encode()
    with replacing(destination, option=_OPTION) as file:
        file.write(data)
    terminal.note(f"wrote {destination}, {size(len(data))}")
