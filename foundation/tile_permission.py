"""Permission to use tile registers, which Linux gives a process that asks.

Without it, an instruction that touches a tile ends the process, whatever the CPU has. It holds for
all threads, is inherited over fork, and is lost when another program is executed. The request fails
if a filter of system calls refuses it, or a thread's alternate signal stack is too small for the
registers.
"""

from __future__ import annotations

import ctypes
import functools

from neocpu.core import LIBRARY


@functools.cache
def tiles_permitted() -> bool:
    """Ask for tile registers, and return whether this process may use them from here on."""
    return bool(ctypes.CDLL(str(LIBRARY)).neocpu_permit_tiles())
