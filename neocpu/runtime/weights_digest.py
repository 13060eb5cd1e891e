"""The digest of weights: of their pieces' digests, so that threads can share the work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from neocpu.runtime.artifact_file.header import WEIGHTS_PIECE


def digest_of_pieces(digests: Iterable[bytes]) -> bytes:
    """Return the digest of weights whose pieces of `WEIGHTS_PIECE` bytes have these, in order."""
    return hashlib.sha256(b"".join(digests)).digest()


class WeightsDigest:
    """The digest of weights that come in parts of any size."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._current = hashlib.sha256()
        self._room = WEIGHTS_PIECE

    def update(self, part: bytes | memoryview) -> None:
        """Add the bytes that follow."""
        view = memoryview(part)
        while view.nbytes:
            taken = view[: self._room]
            self._current.update(taken)
            self._room -= taken.nbytes
            view = view[taken.nbytes :]
            if not self._room:
                self._end_piece()

    def digest(self) -> bytes:
        """Return the digest of all; nothing can be added afterwards."""
        if self._room < WEIGHTS_PIECE:
            self._end_piece()
        return digest_of_pieces(self._pieces)

    def _end_piece(self) -> None:
        self._pieces.append(self._current.digest())
        self._current = hashlib.sha256()
        self._room = WEIGHTS_PIECE
