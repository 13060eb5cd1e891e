"""The number of parts of a picture's file, counted before a decoder makes an object of each.

A few bytes of a comment, or of a strip's place, become hundreds in memory and are copied again and
again: files of 15 MB took a gigabyte, and minutes.
"""

from __future__ import annotations

import io
import struct
from typing import Final

MAX_READS: Final = 1 << 16
"""Pieces in which a file is read until its pixels begin: some four for each part of a JPEG."""
MAX_VALUES: Final = 1 << 16
"""Of a tag of TIFF: as many strips or tiles."""

_BYTE_KINDS: Final = (1, 2, 7)
"""Types of tags that stay bytes: bytes, text, and what is not defined."""
_SINGLE: Final = frozenset((256, 257, 259, 262, 266, 274, 277, 278, 284, 322, 323))
"""Tags of one value. Of several Pillow takes a default, and warns in the midst of decoding."""
_BIG: Final = 43
"""The version of TIFFs whose places have eight bytes."""


class CountedReads(io.BytesIO):
    """A file in memory, read in `MAX_READS` pieces at most until its head is done with."""

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data)
        self._left: int | None = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file.

        Raises
        ------
        ValueError
            The file is read too often.
        """
        if self._left is not None:
            if self._left == 0:
                raise ValueError("too many parts, such as comments, precede its pixels")
            self._left -= 1
        return super().read(size)

    def end_head(self) -> None:
        """Let it be read as often as decoding takes, from now on."""
        self._left = None


def check_tags(file: bytes | memoryview) -> None:
    """Refuse a TIFF of which a tag has more values than its meaning allows, or any picture needs.

    Anything else, a damaged file too, is left to the decoder.

    Raises
    ------
    ValueError
    """
    order = {b"II": "<", b"MM": ">"}.get(bytes(file[:2]))
    if order is None or len(file) < 16:
        return
    # As Pillow tells them apart: in files of the other byte order a nought stands there.
    big = file[2] == _BIG
    where, number = ("Q", "Q") if big else ("I", "H")
    entry = struct.Struct(order + ("HHQ8x" if big else "HHI4x"))
    head = struct.Struct(order + number)
    (start,) = struct.unpack_from(order + where, file, 8 if big else 4)
    if start + head.size > len(file):
        return
    (count,) = head.unpack_from(file, start)
    start += head.size
    end = min(len(file), start + count * entry.size)
    end -= (end - start) % entry.size
    for tag, kind, values in entry.iter_unpack(file[start:end]):
        if values > 1 and tag in _SINGLE:
            raise ValueError(f"its tag {tag} has {values} values, where there is one")
        if values > MAX_VALUES and kind not in _BYTE_KINDS:
            raise ValueError(f"its tag {tag} has {values} values, more than {MAX_VALUES}")
