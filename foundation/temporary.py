"""Temporary folders that do not outlive their process: the next process deletes leftovers."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final

from neocpu.foundation.errors import ArtifactError

PREFIX: Final = ".neocpu-tmp-"
"""The prefix of these folders' names, and of no others: one that is not locked is deleted."""

FULL_BYTES: Final = 1 << 20
"""A disk with fewer free bytes than this counts as full, and as the cause of failures there."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """A folder that is deleted at the end of a ``with`` block, by `cleanup`, or with this object.

    It is locked while this process or a fork of it lives, so that others know it is in use.

    `purpose`: a word on its use, which becomes part of its name. `name`: its path, which a ``with``
    statement yields too. Raises ArtifactError: it cannot be made, or its disk is or gets full.
    """

    def __init__(self, purpose: str) -> None:
        _sweep_once(tempfile.gettempdir(), os.getpid())
        try:
            if shutil.disk_usage(tempfile.gettempdir()).free < FULL_BYTES:
                raise _full()
            self.name, lock = _make(purpose)
        except OSError as error:
            raise _unusable(error.strerror or str(error)) from error
        self._delete = weakref.finalize(self, _delete, self.name, lock, os.getpid())

    def cleanup(self) -> None:
        """Delete the folder and what is in it. May be repeated."""
        self._delete()

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        full = False
        try:
            full = isinstance(error, Exception) and shutil.disk_usage(self.name).free < FULL_BYTES
        except OSError:  # something else deleted the folder
            pass
        finally:
            self.cleanup()
        if full:
            raise _full() from error


def sweep(folder: str | os.PathLike[str]) -> list[Path]:
    """Delete this user's temporary folders in ``folder`` whose processes are dead."""
    swept = []
    with os.scandir(folder) as entries:
        ours = [Path(entry.path) for entry in entries if _is_ours(entry)]
    for path in ours:
        try:
            lock = os.open(path, _FOLDER)
        except OSError:  # deleted meanwhile, or no descriptor is left
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            swept.append(path)
        except OSError:  # locked: its process is alive
            pass
        finally:
            os.close(lock)
    return swept


def _make(purpose: str) -> tuple[str, int]:
    """Return a new folder's path, and a descriptor that keeps it locked."""
    while True:
        name = tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-")
        lock = -1
        try:
            lock = os.open(name, _FOLDER)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.stat(name)
        except FileNotFoundError:  # swept meanwhile, because it was not locked yet
            _close(lock)
        except OSError:
            _close(lock)
            os.rmdir(name)
            raise
        else:
            return name, lock


def _close(lock: int) -> None:
    if lock >= 0:
        os.close(lock)


def _delete(name: str, lock: int, process: int) -> None:
    if os.getpid() == process:  # not in a fork, because its parent still works there
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)


@functools.cache
def _sweep_once(folder: str, process: int) -> None:
    try:
        sweep(folder)
    except OSError:
        pass  # making a folder there will report the error


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return False
    named = entry.name.startswith(PREFIX)
    return named and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _unusable(reason: str) -> ArtifactError:
    return ArtifactError(
        f"cannot work in the temporary folder {tempfile.gettempdir()}: {reason}; free space "
        "there or set TMPDIR"
    )


def _full() -> ArtifactError:
    return _unusable(os.strerror(errno.ENOSPC))
