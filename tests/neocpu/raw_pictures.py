"""Handmade files of pictures of any depth and size, and with false claims."""

import struct
import zlib

import numpy as np

PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a pixel by PNG's colour types."""


def png(
    pixels: np.ndarray, depth: int, colour: int, palette: bytes = b"", clear: bytes = b""
) -> bytes:
    """Return a PNG of samples ``pixels``, height by width by channels, of so many bits each."""
    height, width, _ = pixels.shape
    samples = pixels.reshape(height, -1)
    if depth == 16:
        rows = samples.astype(">u2").view(np.uint8)
    else:
        bits = np.unpackbits(samples.astype(np.uint8)[..., None], axis=2)[..., 8 - depth :]
        rows = np.packbits(bits.reshape(height, -1), axis=1)
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    return png_of(width, height, depth, colour, zlib.compress(data), palette, clear)


def black_png(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG of zeros, which takes few bytes."""
    row = 1 + (width * PNG_CHANNELS[colour] * depth + 7) // 8
    packer, at_once = zlib.compressobj(1), max(1, (1 << 22) // row)
    pieces = [
        packer.compress(bytes(row * min(at_once, height - y))) for y in range(0, height, at_once)
    ]
    palette = bytes(3) if colour == 3 else b""
    return png_of(width, height, depth, colour, b"".join([*pieces, packer.flush()]), palette)


def png_of(
    width: int,
    height: int,
    depth: int,
    colour: int,
    data: bytes,
    palette: bytes = b"",
    clear: bytes = b"",
) -> bytes:
    """Return a PNG with these claims in its header."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))]
    chunks += [(b"PLTE", palette)] if palette else []
    chunks += [(b"tRNS", clear)] if clear else []
    chunks += [(b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def tiff(
    data: bytes,
    width: int,
    height: int,
    bits: tuple[int, ...],
    photometric: int,
    **tags: int | tuple[int, ...],
) -> bytes:
    """Return a TIFF, little-endian, of one strip that is not compressed.

    Tags are given by number, as ``t339=2``; 273, the places of strips, too if there are several.
    """
    fields = {256: (width,), 257: (height,), 258: bits, 259: (1,), 262: (photometric,)}
    fields |= {277: (len(bits),), 278: (height,), 279: (len(data),)}
    fields[273] = (8,)
    for name, given in tags.items():
        fields[int(name[1:])] = given if isinstance(given, tuple) else (given,)
    start = 8 + len(data) + len(data) % 2
    # The longer values lie after the directory.
    count, more = len(fields), b""
    behind = start + 2 + 12 * count + 4
    entries = b""
    for tag, values in sorted(fields.items()):
        kind, code = (3, "H") if tag in (258, 259, 262, 266, 274, 277, 284, 339) else (4, "I")
        packed = struct.pack(f"<{len(values)}{code}", *values)
        if len(packed) > 4:
            entries += struct.pack("<HHII", tag, kind, len(values), behind + len(more))
            more += packed
        else:
            entries += struct.pack("<HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
    directory = struct.pack("<H", count) + entries + bytes(4) + more
    return struct.pack("<2sHI", b"II", 42, start) + data.ljust(start - 8, b"\0") + directory


def bmp(
    data: bytes, width: int, height: int, bits: int, compression: int = 0, extra: bytes = b""
) -> bytes:
    """Return a BMP whose rows, from below, are ``data``; ``extra`` is its palette or its masks."""
    start = 54 + len(extra)
    head = struct.pack("<2sIHHI", b"BM", start + len(data), 0, 0, start)
    info = (40, width, height, 1, bits, compression, len(data), 2835, 2835, 0, 0)
    return head + struct.pack("<IiiHHIIiiII", *info) + extra + data
