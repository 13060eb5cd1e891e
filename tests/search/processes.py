"""The processes that are still alive."""

from __future__ import annotations

from pathlib import Path

import psutil


def alive(folder: Path) -> list[int]:
    """Return the running processes among those that the file names in ``folder`` give."""
    return [int(entry.name) for entry in folder.iterdir() if runs(int(entry.name))]


def runs(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
