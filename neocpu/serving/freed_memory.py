"""The C library's use of memory that is freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 << 20  # the most that M_MMAP_THRESHOLD may be


def keep_freed_memory() -> None:
    """Have the C library keep what is freed for the next request.

    Buffers of an image's size come and go with every request. By default their pages go back to the
    kernel each time, which clears them before it gives them out again: half of a request's time.
    """
    with suppress(AttributeError):  # of another C library than GNU's
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 8 * _KEPT_BYTES)


def return_freed_memory() -> None:
    """Have the C library return to the kernel what is freed and kept."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
