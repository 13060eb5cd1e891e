"""The digest of weights: of their pieces' digests, so that threads can share the work."""

from __future__ import annotations

import hashlib
from typing import Final

WEIGHTS_PIECE: Final = 4 << 20
"""Bytes of weights that are hashed at a time: several threads share the pieces."""


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
        return hashlib.sha256(b"".join(self._pieces)).digest()

    def _end_piece(self) -> None:
        self._pieces.append(self._current.digest())
        self._current = hashlib.sha256()
        self._room = WEIGHTS_PIECE
