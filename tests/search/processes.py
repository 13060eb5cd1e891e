"""The processes that are still alive."""

from __future__ import annotations

from pathlib import Path

import psutil


def alive(folder: Path) -> list[int]:
    """Those of the process ids that name the files of ``folder`` that still run."""
    return [int(entry.name) for entry in folder.iterdir() if runs(int(entry.name))]


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
