"""Bounds on the memory that decoding and fitting a picture takes, known beforehand.

A few bytes of a comment, or of a TIFF's strip, become hundreds in memory, and are copied again and
again: files of 15 MB took a gigabyte, and minutes. So the parts before the pixels are bounded too.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass
from typing import Any, Final

MAX_BYTES: Final = 1 << 29
"""Most bytes that one picture may take while it is decoded and made to fit."""

PIXEL_BYTES: Final = {
    **dict.fromkeys(("1", "L", "P"), 1),
    **dict.fromkeys(("I;16", "I;16B", "I;16L", "I;16N"), 2),
    **dict.fromkeys(("LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "I"), 4),
}
"""Bytes of a pixel in Pillow's memory, by mode, for modes that convert to bytes of 0 to 255."""
_ROW_BYTES: Final = 8
"""Bytes that Pillow needs for each row besides its pixels: a pointer to it."""
_COEFFICIENT_BYTES: Final = 8
_TILE_WIDTH, _TILE_LENGTH, _BITS_PER_SAMPLE = 322, 323, 258
"""Tags of TIFF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The part of a picture that is resized, and its new size."""

    box: tuple[float, float, float, float]  # left, top, right and bottom, in pixels
    size: tuple[int, int]  # width and height, smaller than the result where the rest is grey


def place(given: tuple[int, int], wanted: tuple[int, int], fit: str) -> Placement:
    """Return how a picture is fitted. Sizes are width and height."""
    width, height = given
    ratio = wanted[0] / wanted[1]
    if fit == "crop":
        kept = (min(width, ratio * height), min(height, width / ratio))
        left, top = (width - kept[0]) / 2, (height - kept[1]) / 2
        return Placement(box=(left, top, left + kept[0], top + kept[1]), size=wanted)
    size = wanted
    if fit == "letterbox" and width / height > ratio:
        size = (wanted[0], max(1, round(height / width * wanted[0])))
    elif fit == "letterbox":
        size = (max(1, round(width / height * wanted[1])), wanted[1])
    return Placement(box=(0, 0, width, height), size=size)


def plane_bytes(size: tuple[int, int], mode: str) -> int:
    """Return the bytes of an image in Pillow's memory."""
    width, height = size
    row = -(-width * PIXEL_BYTES[mode] // 4) * 4
    return height * (row + _ROW_BYTES)


def resize_bytes(placement: Placement, wanted: tuple[int, int], mode: str) -> int:
    """Return the bytes Pillow allocates to resize an image (rows, then columns), with a canvas."""
    left, top, right, bottom = placement.box
    width, height = placement.size
    rows = math.ceil(bottom) - math.floor(top) + 2
    taps = (
        extent * (2 * math.ceil(max(1, kept / extent)) + 1)
        for extent, kept in ((width, right - left), (height, bottom - top))
    )
    between = plane_bytes((width, rows), mode)
    return between + _COEFFICIENT_BYTES * sum(taps) + 2 * plane_bytes(wanted, mode)


def decoder_bytes(image: Any, scans: int) -> int:
    """Return the bytes that decoding takes besides the pixels; a JPEG has ``scans`` scans."""
    pixels: int = image.width * image.height
    if image.format in ("JPEG", "MPO"):
        buffered = scans > 1 or image.info.get("progressive")
        return _coefficient_bytes(image) if buffered else 0
    if image.format == "WEBP":
        # libwebp has a frame, the canvas and the previous one, Pillow a copy: 4 bytes a pixel each.
        return 16 * pixels
    if image.format == "TIFF":
        pixel = max(4, -(-sum(bits_per_sample(image)) // 8))
        tags = image.tag_v2
        tile: int = tags.get(_TILE_WIDTH, 0) * tags.get(_TILE_LENGTH, 0)
        whole = pixel * max(tile, pixels)  # a strip may be all of it
        inner = str(image.info.get("compression"))
        return whole + (_coefficient_bytes(image) if inner.endswith("jpeg") else 0)
    if image.format in ("BMP", "PPM"):
        # Pillow decodes some kinds in Python, with copies.
        return 3 * plane_bytes(image.size, image.mode)
    return 0


def bits_per_sample(image: Any) -> tuple[int, ...]:
    """Return the bits of each sample of a TIFF's pixels."""
    return tuple(map(int, image.tag_v2.get(_BITS_PER_SAMPLE, (1,))))


def _coefficient_bytes(image: Any) -> int:
    """Return the bytes of libjpeg's coefficients of a picture in several scans: two a sample."""
    blocks = (-(-image.width // 16)) * (-(-image.height // 16))
    return 2 * len(image.getbands()) * 256 * int(blocks)


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
        if self._left is not None:
            if self._left == 0:
                raise ValueError("too many parts, such as comments, precede its pixels")
            self._left -= 1
        return super().read(size)

    def end_head(self) -> None:
        self._left = None


def check_tags(file: bytes | memoryview) -> None:
    """Refuse a TIFF with a tag of too many values; leave all else, even damage, to the decoder."""
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
