"""The digest of weights, over checksums of pieces that threads compute in parallel."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from neocpu.runtime.aligned_memory import address_of
from neocpu.runtime.binding import library

WEIGHTS_PIECE: Final = 16 << 10
"""Bytes of weights that share a checksum."""


class WeightsDigest:
    """The digest of weights that come in parts of any size: SHA-256 of the pieces' CRC-32C."""

    def __init__(self) -> None:
        self._sums = hashlib.sha256()
        self._rest = b""

    def update(self, part: bytes | memoryview) -> None:
        """Add the bytes that follow."""
        view = memoryview(part)
        if self._rest:
            taken = WEIGHTS_PIECE - len(self._rest)
            self._rest += view[:taken]
            view = view[taken:]
            if len(self._rest) < WEIGHTS_PIECE:
                return
            self._add(self._rest)
        whole = view.nbytes - view.nbytes % WEIGHTS_PIECE
        self._add(view[:whole])
        self._rest = bytes(view[whole:])

    def digest(self) -> bytes:
        """Return the digest of all parts; no part can be added afterwards."""
        self._add(self._rest)
        return self._sums.digest()

    def _add(self, part: bytes | memoryview) -> None:
        data = np.frombuffer(part, np.uint8)
        sums = np.empty(-(-data.nbytes // WEIGHTS_PIECE), np.uint32)
        if data.nbytes:
            library().neocpu_checksums(address_of(data), data.nbytes, address_of(sums))
        self._sums.update(sums.data)
