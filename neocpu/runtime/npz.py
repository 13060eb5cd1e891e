"""Open ``.npz`` archives that anybody may have written: a directory of files, and one of them."""

from __future__ import annotations

import os
import struct
import zipfile
from typing import IO, BinaryIO, Final

MAX_DIRECTORY: Final = 4 << 20
"""Bytes of an archive's directory: each name in it takes some twenty times its bytes of memory."""

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Numpy's ways of compression; others unpack whole blocks, however little is read."""
_END: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_COMMENT_BYTES: Final = 1 << 16
_LOCATOR: Final = struct.Struct("<4xIQI")
"""Before the end of a large archive: where it says what does not fit there."""
_SIZE: Final = 40
"""Where the directory's size is in that."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open an archive for reading.

    Raises
    ------
    ValueError, zipfile.BadZipFile
        If it is none, or names more files than any model has inputs.
    OSError
        If the disk fails.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("not a .npy or .npz file")
    if _directory_bytes(file) > MAX_DIRECTORY:
        raise ValueError("it names more files than any model has inputs")
    return zipfile.ZipFile(file)


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a file of an archive, of which no more is unpacked than is read.

    Raises
    ------
    ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile
        If it cannot be read.
    """
    if archive.getinfo(name).compress_type not in _METHODS:
        raise ValueError("it is compressed in another way than numpy does")
    return archive.open(name)


def _directory_bytes(file: BinaryIO) -> int:
    """Return how large an archive says that its directory is."""
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - _END_BYTES - _COMMENT_BYTES)
    file.seek(start)
    tail = file.read(end - start)
    place = tail.rfind(_END)
    (size,) = struct.unpack_from("<I", tail, place + 12)
    if tail[place - 20 : place].startswith(b"PK\x06\x07"):
        _, offset, _ = _LOCATOR.unpack_from(tail, place - 20)
        file.seek(offset + _SIZE)
        (size,) = struct.unpack("<Q", file.read(8))
    file.seek(0)
    return int(size)
