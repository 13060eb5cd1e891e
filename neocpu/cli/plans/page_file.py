"""Writing a page for a browser."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from neocpu.cli.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import check_destination, replacing
from neocpu.foundation.units import size


def check_page_file(destination: Path | None, others: Iterable[str | Path | None] = ()) -> None:
    """Find out that a page cannot be written there before minutes are spent on what it shows.

    Parameters
    ----------
    others : iterable of str, Path or None
        What must not be written over: files that are read, or written too, and names of networks.

    Raises
    ------
    UsageError
        If it would be, or cannot be written.
    """
    if destination is None:
        return
    for other in (each for each in others if each is not None):
        # Only a path may be of a file to come: a name may be a network's.
        named = isinstance(other, Path) or os.path.exists(other)
        if named and _is_same(destination, Path(other)):
            raise UsageError(f"--html {destination} would be written over {other}; name another")
    check_destination(destination, option="--html")


def write_page_file(terminal: Terminal, destination: Path, text: str) -> None:
    """Write a page, and say so.

    Raises
    ------
    UsageError, ArtifactError
        If it cannot be written.
    """
    data = text.encode()
    with replacing(destination, option="--html") as file:
        file.write(data)
    terminal.note(f"wrote {destination}, {size(len(data))}")


def _is_same(one: Path, other: Path) -> bool:
    """Whether both are one file, or will be once it is there."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)
