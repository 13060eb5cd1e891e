"""Format and parse numbers for people and for JSON."""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def duration(seconds: float) -> str:
    """Return seconds in the unit that suits them: ``3.2 µs``, ``18.00 ms``, ``2.4 s``.

    >>> duration(0.0180012)
    '18.00 ms'
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def size(count: int) -> str:
    """Return bytes as ``812 B``, ``14.2 kB`` or ``102.6 MB``."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def parse_duration(text: str) -> float:
    """Parse a duration such as ``90``, ``2ms``, ``60s``, ``10m`` or ``1h``; return its seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _SECONDS:
        raise ValueError(f"'{text}' is not a duration: write 90, 2ms, 60s, 10m or 1h")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if math.isinf(seconds):
        raise ValueError(f"'{text[:20]}…' is longer than anybody waits")
    return seconds


def parse_size(text: str) -> int:
    """Return the bytes of ``812``, ``120MB``, ``1.5 GB`` or ``64MiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text.strip().lower())
    if match is None or (unit := match[2] if match[2] != "b" else "") not in _BYTES:
        raise ValueError(f"'{text}' is not a size: write 120MB, 1.5GB, 64MiB or a number of bytes")
    count = float(match[1]) * _BYTES[unit]
    if math.isinf(count):
        raise ValueError(f"'{text[:20]}…' is more than any machine has")
    return round(count)


def plural(count: int, noun: str) -> str:
    """Return ``1 transform`` or ``3 transforms``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def json_number(value: float | None) -> float | None:
    """Return a number, or None if JSON cannot express it."""
    return value if value is not None and math.isfinite(value) else None
