"""Control what the C library does with freed memory."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 << 20  # the most that M_MMAP_THRESHOLD may be


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next request.

    By default the pages of buffers of an image's size go back to the kernel each time, and clearing
    them takes half of a request's time.
    """
    with suppress(AttributeError):  # another C library than GNU's
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 8 * _KEPT_BYTES)


def return_freed_memory() -> None:
    """Make the C library return its freed memory to the kernel."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
