"""Permission to use tile registers, which Linux gives a process that asks.

An instruction that touches a tile without it ends the process, whatever the CPU says that it has.
It holds for all threads, is inherited over fork, and lost when another program is executed. The
system may refuse: where a filter of system calls does, or a thread's alternate signal stack is too
small for the registers.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Final

_ARCH_PRCTL: Final = 158
_REQUEST, _TILE_DATA = 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA


@functools.cache
def tiles_permitted() -> bool:
    """Ask for tile registers, and return whether this process may use them from here on."""
    if os.uname().machine != "x86_64":
        return False
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    return bool(syscall(_ARCH_PRCTL, ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)) == 0)
