"""The tuning databases of the commands that measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.files import read_file
from neocpu.foundation.units import plural


def writable_database(databases: Sequence[Path]) -> Path:
    """Return the database to write to: the last named one, or the user's own."""
    if databases:
        return databases[-1]
    from neocpu.tuning_db.store import default_database

    return default_database()


def own_and_named(databases: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the databases that may be read or written: the user's own, and the named ones."""
    return (writable_database(()), *databases)


def report_kept_measurements(terminal: Terminal, databases: Sequence[Path]) -> None:
    """Make an interruption report how many measurements from now on are in the database."""
    path = writable_database(databases)
    before = _count_lines(path)

    def kept() -> str:
        count = _count_lines(path) - before
        return f"{plural(count, 'measurement')} kept in {path}" if count else "nothing was written"

    terminal.kept = kept


def _count_lines(path: Path) -> int:
    try:
        return read_file(path, 1 << 30).count(b"\n")
    except OSError:
        return 0
