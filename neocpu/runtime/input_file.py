"""Read a file that may be anything: parts of it, checked, and never a wait for what has no end."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import ArtifactError

PIECE: Final = 4 << 20
"""Bytes that are read or hashed at a time."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A range of an open file.

    Attributes
    ----------
    fd : int
        Descriptor of the file.
    where : str
        What errors call the range.
    offset, size : int
        Bytes.
    """

    fd: int
    where: str
    offset: int
    size: int

    def part(self, offset: int, size: int, where: str) -> FilePart:
        """Return a range within this one."""
        assert offset + size <= self.size
        return FilePart(self.fd, where, self.offset + offset, size)

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``.

        Raises
        ------
        ArtifactError
            If there are fewer: the file has become shorter since its size was looked at.
        """
        data = os.pread(self.fd, size, self.offset + offset)
        if len(data) != size:
            raise self._cut()
        return data

    def pieces(self, end: int) -> Iterator[bytes]:
        """Yield the bytes up to ``end``, `PIECE` at a time.

        Raises
        ------
        ArtifactError
            As `read`.
        """
        for start in range(0, end, PIECE):
            yield self.read(start, min(PIECE, end - start))

    def map(self, offset: int, size: int) -> memoryview:
        """Return a private read-only mapping of ``size`` bytes from ``offset``.

        Raises
        ------
        ArtifactError
            As `read`.
        """
        if size == 0:
            return memoryview(b"")
        start = self.offset + offset
        skipped = start % mmap.ALLOCATIONGRANULARITY
        try:
            data = mmap.mmap(
                self.fd,
                skipped + size,
                flags=mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ,
                offset=start - skipped,
            )
        except ValueError:
            raise self._cut() from None
        return memoryview(data)[skipped:]

    def _cut(self) -> ArtifactError:
        return ArtifactError(
            f"{self.where} was cut short while it was read: replace a file by renaming another "
            "over it (mv), not by writing into it"
        )


@contextmanager
def open_regular(path: Path) -> Iterator[FilePart]:
    """Open a regular file, and close it again.

    Raises
    ------
    ArtifactError
        If it cannot be opened or read, or is a folder, a pipe or a device.
    """
    try:
        _check_kind(path, os.stat(path))  # opening a device may do something
        # Without a wait, if a pipe that nobody writes to has taken the file's place.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise ArtifactError(f"cannot open artifact {path}: {error.strerror}") from error
    except ValueError as error:
        raise ArtifactError(f"cannot open artifact {str(path)!r}: {error}") from error
    try:
        status = os.fstat(fd)
        _check_kind(path, status)
        yield FilePart(fd, str(path), 0, status.st_size)
    except OSError as error:
        raise ArtifactError(f"cannot read artifact {path}: {error.strerror}") from error
    finally:
        os.close(fd)


def _check_kind(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a file but a pipe or device"
        raise ArtifactError(f"cannot open artifact {path}: it is {kind}")
