"""Arrays of an untrusted file, which are read only as far as rows are requested.

An archive of some megabytes may unpack to as many gigabytes, and only a few samples are needed.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import regular_status
from neocpu.foundation.plain_text import plain
from neocpu.quantiser.ranges import Array
from neocpu.runtime import npy

MAX_FORTRAN: Final = 1 << 28  # bytes of an array in Fortran's order, which is read as a whole
_DAMAGED: Final = (EOFError, zipfile.BadZipFile, zlib.error, OverflowError, struct.error)
_UNREADABLE: Final = (OSError, ValueError, MemoryError, RuntimeError, *_DAMAGED)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn errors of reading a file into a UsageError, whose one line begins with ``what``."""
    try:
        yield
    except UsageError:  # a ValueError too, but its message is complete
        raise
    except _UNREADABLE as error:
        raise UsageError(f"{what} cannot be read as arrays ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, _DAMAGED):
        return "it is damaged or cut short"
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextmanager
def _stream(file: BinaryIO, archive: zipfile.ZipFile | None, member: str) -> Iterator[IO[bytes]]:
    if archive is None:
        file.seek(0)
        yield file
    else:
        with npy.open_member(archive, member) as stream:
            yield stream


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array that is still in its file."""

    what: str  # name that messages give it
    file: BinaryIO  # open for reading bytes
    archive: zipfile.ZipFile | None  # archive in the file; None if the file is the array itself
    member: str  # name of the array's file in the archive
    header: npy.NpyHeader

    @property
    def shape(self) -> tuple[int, ...]:
        return self.header.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.header.dtype

    def read(self, rows: int | None) -> Array:
        """Read rows, or all if None. Raises UsageError: it is cut short, or too much to read."""
        header = self.header
        with reading(self.what), _stream(self.file, self.archive, self.member) as stream:
            if header.fortran and header.nbytes > MAX_FORTRAN:
                raise ValueError("it is in Fortran's order: save it with numpy.ascontiguousarray")
            npy.read_npy_header(stream)
            if rows is not None and not header.fortran:
                header = replace(header, shape=(min(rows, self.shape[0]), *self.shape[1:]))
            return npy.read_npy_data(stream, header)


class StoredArrays(Mapping[str, StoredArray], Closing):
    """Arrays of an ``.npz`` file by name, or that of an ``.npy`` file by an empty name.

    Raises UsageError: the file is of another kind; getting an array without numbers raises, too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members = {"": ""}
        self._archive = None
        with reading(str(path)), ExitStack() as opened:
            regular_status(path)
            self._file = opened.enter_context(open(path, "rb"))
            if not self._file.peek(len(npy.MAGIC)).startswith(npy.MAGIC):
                self._archive = opened.enter_context(npy.open_archive(self._file))
                names = self._archive.namelist()
                self._members = {name.removesuffix(".npy"): name for name in names}
            self._opened = opened.pop_all()

    def __getitem__(self, name: str) -> StoredArray:
        member = self._members[name]
        what = f"array '{plain(name)}' of {self._path}" if name else str(self._path)
        with reading(what), _stream(self._file, self._archive, member) as stream:
            header = npy.read_npy_header(stream)
        return StoredArray(
            what=what, file=self._file, archive=self._archive, member=member, header=header
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def close(self) -> None:
        self._opened.close()
