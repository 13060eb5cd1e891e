"""Workspaces of kernels between inaccessible pages."""

from __future__ import annotations

from typing import Final

from neocpu.runtime.guarding.guarded_memory import FILLING, Edge, GuardedMemory
from neocpu.runtime.guarding.kernel_calls import Allocate, Release

FILLED: Final = 1 << 24
"""Bytes of the largest workspace that is filled with a pattern.

A kernel may ask for a larger one in each of 100,000 tasks, and use a page of it.
"""


class Workspaces:
    """Lends workspaces to the kernels of one model, which call it from any thread.

    `edge`: the edge at which new workspaces meet inaccessible pages. `allocate` and `release`:
    callbacks for kernels. They must be kept as long as kernels may call them.
    """

    def __init__(self) -> None:
        self.edge: Edge = "end"
        self._busy: dict[int, GuardedMemory] = {}
        self._strays: list[str] = []
        self.allocate: Final = Allocate(self._allocate)
        self.release: Final = Release(self._release)

    def take_strays(self) -> list[str]:
        """Return where kernels wrote outside workspaces since the last call."""
        strays, self._strays = self._strays, []
        return strays

    def _allocate(self, _: int, __: int, size: int, ___: int, ____: int) -> int:
        memory = GuardedMemory(max(size, 1), self.edge)
        if size <= FILLED:
            memory.content.fill(FILLING[self.edge])  # reading memory never written changes results
        self._busy[memory.address] = memory
        return memory.address

    def _release(self, _: int, __: int, address: int) -> int:
        if stray := self._busy.pop(address).stray_write():
            self._strays.append(stray)
        return 0
