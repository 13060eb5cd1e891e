"""Workspaces of kernels between inaccessible pages."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import threading
from typing import Final

from neocpu.runtime.guarding.guarded_memory import FILLING, Edge, GuardedMemory

# TVMBackendAllocWorkspace(device_type, device_id, bytes, dtype_code, dtype_bits)
_Allocate = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
)
# TVMBackendFreeWorkspace(device_type, device_id, address)
_Free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)

FILLED: Final = 1 << 24
"""Bytes of the largest workspace that is filled: a kernel may ask for more in each of 100,000
tasks, and use a page of it."""


class Workspaces:
    """Stands in for TVM's allocator of workspaces. Kernels call it from any thread.

    Attributes
    ----------
    turn : lock
        To be held while a kernel is run and its strays are taken: what allocates cannot know which
        module's kernel it serves.
    edge : str
        Which edge of workspaces meets inaccessible pages from now on.
    """

    def __init__(self) -> None:
        self._renew_turn()
        os.register_at_fork(after_in_child=self._renew_turn)
        self.edge: Edge = "end"
        self._busy: dict[int, GuardedMemory] = {}
        self._strays: list[str] = []
        self._callbacks: Final = {
            "__TVMBackendAllocWorkspace": _Allocate(self._allocate),
            "__TVMBackendFreeWorkspace": _Free(self._free),
        }

    def attach(self, library: str | os.PathLike[str]) -> None:
        """Have the kernels of a library that TVM has loaded allocate here."""
        code = ctypes.CDLL(os.fspath(library))  # the one that is loaded
        for name, callback in self._callbacks.items():
            try:
                variable = ctypes.c_void_p.in_dll(code, name)
            except ValueError:  # none of its kernels needs a workspace
                continue
            variable.value = ctypes.cast(callback, ctypes.c_void_p).value
        # Kept open, it would be taken for the next file that gets its inode.
        _ctypes.dlclose(code._handle)

    def take_strays(self) -> list[str]:
        """Say where kernels wrote beside workspaces since the last call."""
        strays, self._strays = self._strays, []
        return strays

    def _renew_turn(self) -> None:
        # A fork may have come while a thread held it that the child does not have.
        self.turn = threading.Lock()

    def _allocate(self, _: int, __: int, size: int, ___: int, ____: int) -> int:
        memory = GuardedMemory(max(size, 1), self.edge)
        if size <= FILLED:
            memory.content.fill(FILLING[self.edge])  # reading what was never written shows
        self._busy[memory.address] = memory
        return memory.address

    def _free(self, _: int, __: int, address: int) -> int:
        if stray := self._busy.pop(address).stray_write():
            self._strays.append(stray)
        return 0


@functools.cache
def workspaces() -> Workspaces:
    """Return those of this process, which must outlive every library they are attached to."""
    return Workspaces()
