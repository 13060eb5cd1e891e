"""Open ``.npz`` archives from anybody, and files in them."""

from __future__ import annotations

import zipfile
from typing import IO, BinaryIO, Final

MAX_DIRECTORY: Final = 4 << 20
"""The most bytes of an archive's directory. In memory, a name takes some twenty times its bytes."""

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""numpy's compression methods. Others unpack whole blocks, however little is read."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open an archive for reading.

    Raises ValueError and zipfile.BadZipFile: the file is no archive, or names more files than any
    model has inputs. Raises OSError: the disk fails.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("not a .npy or .npz file")
    if _directory_bytes(file) > MAX_DIRECTORY:
        raise ValueError("it names more files than any model has inputs")
    return zipfile.ZipFile(file)


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a file of an archive. Only the part that is read is unpacked.

    Raises ValueError, RuntimeError, NotImplementedError and zipfile.BadZipFile: the file cannot be
    read.
    """
    if archive.getinfo(name).compress_type not in _METHODS:
        raise ValueError("it is compressed in another way than numpy does")
    return archive.open(name)


def _directory_bytes(file: BinaryIO) -> int:
    """Return the bytes of a zip file's directory. Opening the file reads the whole directory."""
    # A private function: a reader of our own might find another record than zipfile does.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    return int(end[zipfile._ECD_SIZE])  # type: ignore[attr-defined]
