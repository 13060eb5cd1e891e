"""Open ``.npz`` archives that anybody may have written: a directory of files, and one of them."""

from __future__ import annotations

import zipfile
from typing import IO, BinaryIO, Final

MAX_DIRECTORY: Final = 4 << 20
"""Bytes of an archive's directory: each name in it takes some twenty times its bytes of memory."""

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Numpy's ways of compression; others unpack whole blocks, however little is read."""


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
    """Return how large a zip file's directory is, which opening it reads whole."""
    # Private, but a reader of our own could be led to another record than the one that counts.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    return int(end[zipfile._ECD_SIZE])  # type: ignore[attr-defined]
