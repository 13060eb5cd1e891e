"""Files that appear whole or not at all, and changes of a folder that last."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from neocpu.schedules.errors import ArtifactError, UsageError


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


def check_destination(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written at ``path``, before spending minutes on its content.

    Raises
    ------
    UsageError, ArtifactError
        As `replacing`.
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _write_error(path, error, 0) from error


@contextmanager
def replacing(path: Path, size: int = 0, *, executable: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; on success sync it and rename it over ``path``.

    Parameters
    ----------
    path : Path
        The destination.
    size : int
        Bytes that will be written, for the message if they do not fit.
    executable : bool
        Whether the file is code.

    Raises
    ------
    UsageError
        If the folder is missing or not writable, or ``path`` is a folder.
    ArtifactError
        If the disk is full or fails.
    """
    temporary: str | None = None
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fchmod(fd, (0o777 if executable else 0o666) & ~_umask())
            os.fsync(fd)
        os.replace(temporary, path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise _write_error(path, error, size) from error
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _umask() -> int:
    # os.umask reads it only by changing it, for all threads.
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:"))[6:], 8)


def _write_error(path: Path, error: OSError, size: int) -> UsageError | ArtifactError:
    """Return the user's error for a failed write, with its fix."""
    place = f"cannot write {path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        needed = f" ({size / 1e6:.1f} MB needed)" if size else ""
        return ArtifactError(f"{place}: {error.strerror}{needed}; free space or choose another -o")
    if error.errno == errno.ENOENT:
        return UsageError(f"{place}: there is no folder {path.parent}; create it or change -o")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR):
        return UsageError(f"{place}: {error.strerror}; choose another -o")
    return ArtifactError(f"{place}: {error.strerror}")
