"""Making changes of a folder last."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Put on disk which files ``folder`` holds, so that a new or renamed one survives a crash.

    Raises
    ------
    OSError
        If the folder is not there or the disk fails.
    """
    stream = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(stream)
    finally:
        os.close(stream)
