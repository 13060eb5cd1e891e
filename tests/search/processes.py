"""Who is still alive."""

from __future__ import annotations

import time
from collections.abc import Callable
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


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Wait until ``condition`` holds; say whether it did in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.002)  # some conditions hold for a moment alone
    return False
