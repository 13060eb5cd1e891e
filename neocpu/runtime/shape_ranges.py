"""Shapes with extents that calls choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neocpu.foundation.size_formulas import Size


@dataclass(frozen=True, slots=True)
class Range:
    """An extent that follows from those that calls choose: from ``least`` to ``most``."""

    least: int
    most: int

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{self.least}..{self.most}"


Extent: TypeAlias = "int | Size | Range"
"""An extent that is fixed, that calls choose, or that follows from others."""
Ranges: TypeAlias = tuple[Extent, ...]
"""The extents of a tensor."""


def ranges_text(ranges: Sequence[Extent], separator: str = ",") -> str:
    """Return extents for messages: ``1,3,64..1024/8,320``."""
    return separator.join(map(str, ranges))


def admits(ranges: Sequence[Extent], shape: Sequence[int]) -> bool:
    """Whether each extent of a shape is the fixed one, or lies in its range."""
    return len(ranges) == len(shape) and all(
        one == value if isinstance(one, int) else value in one
        for one, value in zip(ranges, shape, strict=True)
    )


def shape_hint(expected: Sequence[Extent], given: tuple[int, ...]) -> str:
    """Return the likely mistake: channels last, or no batch axis."""
    if len(expected) == 4:
        if len(given) == 4 and admits(expected, (given[0], given[3], given[1], given[2])):
            return ": it looks like NHWC, pass x.transpose(0, 3, 1, 2)"
        if len(given) == 3 and admits(expected, (1, given[2], given[0], given[1])):
            return ": it looks like HWC, pass x.transpose(2, 0, 1)[None]"
    if admits(expected, (1, *given)):
        return ": the batch axis is missing, pass x[None]"
    return ""
