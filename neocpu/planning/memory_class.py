"""Classes of operators that move bytes in the same way, whatever their size."""

from __future__ import annotations

from enum import StrEnum


class MemoryClass(StrEnum):
    """Operators that move bytes in the same way, whatever their size."""

    PACK = "pack"  # NCHW to NCHW[x]c
    UNPACK = "unpack"  # and back
    WIDEN = "widen"  # to larger blocks
    NARROW = "narrow"  # to smaller ones
    ELEMENTWISE = "elementwise"
    CONCAT = "concat"
    SHIFTED_CONCAT = "shifted concat"  # of channels that do not fill their blocks
