"""Large arrays in a mapped temporary file, so that the kernel can drop their pages."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from typing import BinaryIO, Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import ArtifactError

LEAST_BYTES: Final = 1 << 16
"""Bytes of the smallest array that is written. Smaller ones take less than a mapping."""


class ArrayFile:
    """Arrays in a file without a name. Each stays as long as there is a reference to it."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def keep(self, array: Array) -> Array:
        """Write a contiguous array to the file, and return it mapped; return a small one as it is.

        Raises ArtifactError: the disk of temporary files is full.
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
        """Write bytes at the next offset that can be mapped, and return the offset."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="neocpu-arrays-")
            weakref.finalize(self, self._file.close)
        place = -(-self._file.tell() // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.seek(place)
        self._file.write(data.data)
        self._file.flush()
        return place
