"""Large arrays in a temporary file, mapped into memory: their pages are the kernel's to drop."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import BinaryIO, Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import ArtifactError

LEAST_BYTES: Final = 1 << 16
"""Size of the smallest array that is written: smaller ones take less than a mapping."""


class ArrayFile:
    """Arrays in a file that has no name; each stays for as long as somebody holds it."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def keep(self, array: Array) -> Array:
        """Return a contiguous array as it lies in the file; a small one as it is.

        Raises
        ------
        ArtifactError
            The disk of temporary files is full.
        """
        if array.nbytes < LEAST_BYTES:
            return array
        try:
            place = self._write(array.reshape(-1).view(np.uint8))
            assert self._file is not None
            data = mmap.mmap(
                self._file.fileno(), array.nbytes, access=mmap.ACCESS_READ, offset=place
            )
        except OSError as error:
            raise ArtifactError(
                f"cannot keep weights in {tempfile.gettempdir()}: {error.strerror}; free space "
                "there or set TMPDIR"
            ) from error
        return np.frombuffer(data, np.uint8).view(array.dtype).reshape(array.shape)

    def _write(self, data: Array) -> int:
        """Write bytes at the next place that can be mapped; return it."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="neocpu-arrays-")
            weakref.finalize(self, self._file.close)
        place = -(-self._file.tell() // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.seek(place)
        self._file.write(data.data)
        self._file.flush()
        return place
