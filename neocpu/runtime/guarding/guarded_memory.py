"""Memory between pages that nobody may touch: code that steps out of it dies at once."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from neocpu.runtime.aligned_memory import address_of
from neocpu.runtime.array_types import AnyArray

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Edge: TypeAlias = Literal["end", "beginning"]
EDGES: Final[tuple[Edge, ...]] = ("end", "beginning")
"""At which of its edges memory can meet the inaccessible pages."""

FENCE: Final = 1 << 20
"""Inaccessible bytes on either side: an index that is wrong by a whole row shall meet them too."""

FILLING: Final[dict[Edge, int]] = {"end": 0xFF, "beginning": 0x3F}
"""The byte that fills what lies between memory and the fence: NaN or -1, and 0.75 or huge indices.

They differ as much as can be, so that results which depend on them do.
"""

ALIGNMENT: Final = 64
"""Bytes that every argument of a kernel starts on a multiple of."""

_PROT_NONE: Final = 0


class GuardedMemory:
    """Some bytes of which one edge meets inaccessible pages.

    They start on a multiple of 64 bytes like any argument of a kernel, plus ``skew``: at their
    beginning the fence is exact, at their end up to 63 bytes away, or less with a smaller
    ``alignment``. Whatever lies between them and a fence is filled with a pattern.

    Parameters
    ----------
    size : int
        Bytes, at least one.
    edge : str
        ``end`` or ``beginning``.
    skew : int
        Bytes by which they start after a multiple of the alignment.
    alignment : int

    Attributes
    ----------
    content : array of uint8
        The bytes. They are unmapped once this array and all its views are gone.
    """

    __slots__ = ("_pages", "_start", "content", "edge")

    def __init__(self, size: int, edge: Edge, skew: int = 0, alignment: int = ALIGNMENT) -> None:
        room = -(-(size + skew) // mmap.PAGESIZE) * mmap.PAGESIZE
        mapping = mmap.mmap(-1, room + 2 * FENCE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pages: AnyArray = np.frombuffer(mapping, np.uint8, room, FENCE)
        first = address_of(self._pages)
        for fence in (first - FENCE, first + room):
            _protect(fence, FENCE, _PROT_NONE)
        spare = room - size - skew if edge == "end" else 0
        self.edge: Final = edge
        self._start = spare // alignment * alignment + skew
        self.content: AnyArray = self._pages[self._start : self._start + size]
        for slack in self._slacks():
            slack.fill(FILLING[edge])

    @property
    def address(self) -> int:
        """Where the first byte lies."""
        return address_of(self._pages) + self._start

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
        """Return the bytes as an array, which keeps them."""
        return self.content.view(dtype).reshape(shape)

    def make_read_only(self) -> None:
        """Let whoever writes to them, or to what fills their pages, die as well."""
        _protect(address_of(self._pages), self._pages.size, mmap.PROT_READ)

    def stray_write(self) -> str | None:
        """Say on which side of them something was written, if it was."""
        before, after = (bool((slack != FILLING[self.edge]).any()) for slack in self._slacks())
        return "behind the end" if after else "before the beginning" if before else None

    def _slacks(self) -> tuple[AnyArray, AnyArray]:
        """Return what lies before and after them in their pages."""
        return self._pages[: self._start], self._pages[self._start + self.content.size :]


def guarded(array: AnyArray, edge: Edge, alignment: int = ALIGNMENT) -> GuardedMemory:
    """Copy an array that is not empty to where it meets inaccessible pages."""
    memory = GuardedMemory(array.nbytes, edge, alignment=alignment)
    memory.array(array.shape, array.dtype)[...] = array
    return memory


_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _protect(address: int, size: int, protection: int) -> None:
    if _libc.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
