"""Memory between inaccessible pages. Code that steps out of it dies at once."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from neocpu.runtime.aligned_memory import address_of
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.guarding.kernel_calls import Allocate, Release

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Edge: TypeAlias = Literal["end", "beginning"]
EDGES: Final[tuple[Edge, ...]] = ("end", "beginning")
"""The edges at which memory can meet the inaccessible pages."""

FENCE: Final = 1 << 20
"""Inaccessible bytes on either side. An index that is wrong by a whole row must meet them too."""

FILLING: Final[dict[Edge, int]] = {"end": 0xFF, "beginning": 0x3F}
"""The fill of the gap before the fence: NaN or -1; 0.75 or huge indices, so that results differ."""

ALIGNMENT: Final = 64
"""The alignment of a kernel's arguments, in bytes."""


class GuardedMemory:
    """Bytes with one edge next to inaccessible pages.

    They start ``skew`` bytes after a multiple of ``alignment``, so a fence at their end is up to 63
    bytes away. That gap is filled with a pattern. The bytes are unmapped once `content` and all its
    views are gone.
    """

    __slots__ = ("_pages", "_start", "content", "edge")

    def __init__(self, size: int, edge: Edge, skew: int = 0, alignment: int = ALIGNMENT) -> None:
        room = -(-(size + skew) // mmap.PAGESIZE) * mmap.PAGESIZE
        mapping = mmap.mmap(-1, room + 2 * FENCE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pages: AnyArray = np.frombuffer(mapping, np.uint8, room, FENCE)
        first = address_of(self._pages)
        for fence in (first - FENCE, first + room):
            _protect(fence, FENCE, protection=0)  # PROT_NONE, which mmap lacks
        spare = room - size - skew if edge == "end" else 0
        self.edge: Final = edge
        self._start = spare // alignment * alignment + skew
        self.content: AnyArray = self._pages[self._start : self._start + size]
        for slack in self._slacks():
            slack.fill(FILLING[edge])

    @property
    def address(self) -> int:
        return address_of(self._pages) + self._start

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
        """Return the bytes as an array, which keeps them alive."""
        return self.content.view(dtype).reshape(shape)

    def make_read_only(self) -> None:
        """Let code die that writes to them or to the filling of their pages."""
        _protect(address_of(self._pages), self._pages.size, mmap.PROT_READ)

    def stray_write(self) -> str | None:
        """Return where code wrote next to them; None if nowhere."""
        before, after = (bool((slack != FILLING[self.edge]).any()) for slack in self._slacks())
        return "behind the end" if after else "before the beginning" if before else None

    def _slacks(self) -> tuple[AnyArray, AnyArray]:
        return self._pages[: self._start], self._pages[self._start + self.content.size :]


def guarded(array: AnyArray, edge: Edge, alignment: int = ALIGNMENT) -> GuardedMemory:
    """Copy a non-empty array to memory next to inaccessible pages."""
    memory = GuardedMemory(array.nbytes, edge, alignment=alignment)
    memory.array(array.shape, array.dtype)[...] = array
    return memory


_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _protect(address: int, size: int, protection: int) -> None:
    if _libc.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


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
