"""Permission to use tile registers, which Linux gives a process that asks.

An instruction that touches a tile without it ends the process, whatever the CPU says that it has.
It holds for all threads, is inherited over fork, and lost when another program is executed. The
system may refuse: where a filter of system calls does, or a thread's alternate signal stack is too
small for the registers.
"""

from __future__ import annotations

import ctypes
import functools

from neocpu.core import LIBRARY


@functools.cache
def tiles_permitted() -> bool:
    """Ask for tile registers, and return whether this process may use them from here on."""
    return bool(ctypes.CDLL(str(LIBRARY)).neocpu_permit_tiles())
