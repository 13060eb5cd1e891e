"""Writing a page for a browser."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import replacing
from neocpu.foundation.units import size


def check_page_file(destination: Path | None, read: Iterable[Path] = ()) -> None:
    """Find out that a page cannot be written there before minutes are spent on what it shows.

    Parameters
    ----------
    read : iterable of Path
        What must not be written over.

    Raises
    ------
    UsageError
        If it would be, or cannot be written.
    """
    from neocpu.foundation.files import check_destination

    if destination is None:
        return
    for path in read:
        if destination.exists() and path.exists() and destination.samefile(path):
            raise UsageError(f"--html {destination} would be written over {path}; name another")
    check_destination(destination, option="--html")


def write_page_file(
    terminal: Terminal, destination: Path, text: str, read: Iterable[Path] = ()
) -> None:
    """Write a page, and say so.

    Parameters
    ----------
    read : iterable of Path
        What must not be written over.

    Raises
    ------
    UsageError
        If it would be, or cannot be written.
    """
    check_page_file(destination, read)
    data = text.encode()
    with replacing(destination, option="--html") as file:
        file.write(data)
    terminal.note(f"wrote {destination}, {size(len(data))}")
