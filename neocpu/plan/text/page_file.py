"""Writing a page for a browser."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.files import check_destination, replacing
from neocpu.foundation.units import size

_OPTION = "--html"


def check_page_file(destination: Path | None, others: Iterable[str | Path | None] = ()) -> None:
    """Check that a page can be written, before minutes are spent on its contents.

    Raises UsageError or ArtifactError: a file is not writable, or is one of `others`.
    """
    check_destination(destination, _OPTION, others)


def write_page_file(terminal: Terminal, destination: Path, text: str) -> None:
    """Write a page, and say so. Raises UsageError or ArtifactError: the page cannot be written."""
    data = text.encode()
    with replacing(destination, option=_OPTION) as file:
        file.write(data)
    terminal.note(f"wrote {destination}, {size(len(data))}")
