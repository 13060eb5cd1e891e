"""Bound the parts of a picture's file before a decoder makes an object of each.

A few bytes of a comment, or of a strip's place, become hundreds in memory, and are copied again and
again. Files of 15 MB took a gigabyte, and minutes.
"""

from __future__ import annotations

import io
import struct
from typing import Final

MAX_READS: Final = 1 << 16
"""The most reads of a file before its pixels begin. Each part of a JPEG takes about four."""
MAX_VALUES: Final = 1 << 16
"""The most values of a TIFF's tag, which is the most strips or tiles."""

_BYTE_KINDS: Final = (1, 2, 7)
"""Types of tags that stay bytes: bytes, text and undefined."""
_SINGLE: Final = frozenset((256, 257, 259, 262, 266, 274, 277, 278, 284, 322, 323))
"""Tags with one value. If there are several, Pillow takes a default and warns while it decodes."""
_BIG: Final = 43
"""The version of TIFFs with offsets of eight bytes."""


class CountedReads(io.BytesIO):
    """A file in memory that allows `MAX_READS` reads until its head is complete."""

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data)
        self._left: int | None = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the file, like any other.

        Raises ValueError: the head of the file takes too many reads.
        """
        if self._left is not None:
            if self._left == 0:
                raise ValueError("too many parts, such as comments, precede its pixels")
            self._left -= 1
        return super().read(size)

    def end_head(self) -> None:
        """Allow any number of reads from now on."""
        self._left = None


def check_tags(file: bytes | memoryview) -> None:
    """Refuse a TIFF with a tag that has more values than its meaning allows or any picture needs.

    All else, even a damaged file, is left to the decoder.
    """
    order = {b"II": "<", b"MM": ">"}.get(bytes(file[:2]))
    if order is None or len(file) < 16:
        return
    # As Pillow does: in a file of the other byte order this byte is 0.
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
