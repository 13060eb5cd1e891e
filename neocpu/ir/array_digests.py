"""Digests of weights, each computed once."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.host import usable_cpus

_PIECE: Final = 1 << 20
"""The bytes of a piece with its own digest, so that several threads can compute digests."""


class ArrayDigests:
    """The digests of arrays in memory, which must not change after their digest is computed. They
    are kept alive: another array at the same address would get the digest of the first.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[bytes, Array]] = {}

    def of(self, array: Array) -> bytes:
        """Return a digest of an array's shape, element type and elements."""
        turned = not array.flags.c_contiguous  # as matrices are
        elements = self.of_elements(np.ascontiguousarray(array.T if turned else array))
        about = repr((array.shape, array.dtype.name, turned)).encode()
        return hashlib.sha256(elements + about).digest()

    def of_elements(self, array: Array) -> bytes:
        data = array.reshape(-1).view(np.uint8)
        key = data.ctypes.data, data.size
        if key not in self._known:
            self._known[key] = elements_digest(data), data
        return self._known[key][0]


def elements_digest(data: Array) -> bytes:
    """Return a digest of a vector of bytes."""
    pieces = [data[first : first + _PIECE] for first in range(0, data.size, _PIECE)]
    if len(pieces) < 2:
        return _digest_of_piece(data)
    with ThreadPoolExecutor(min(len(pieces), usable_cpus())) as threads:
        return hashlib.sha256(b"".join(threads.map(_digest_of_piece, pieces))).digest()


def _digest_of_piece(data: Array) -> bytes:
    return hashlib.sha256(data.data).digest()
