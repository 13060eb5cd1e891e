"""Where tensors lie in one block of memory, so that those alive at the same time do not overlap.

Greedy by size, lowest place that is free (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020): within a few per cent of the lower bound in networks like ours. What
is placed is not one tensor but a `Group` of them with fixed distances: the parts of a concatenation
are written to where the joined tensor is read, and each part is busy only as long as it needs be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALIGN: Final = 128
"""Bytes each group starts on a multiple of: two cache lines, the adjacent-line prefetch unit."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that are busy for a while.

    Attributes
    ----------
    offset, size : int
        Bytes, from the start of the group.
    first, last : int
        The first and the last step at which they are busy.
    """

    offset: int
    size: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether both are busy at some step."""
        return self.first <= other.last and other.first <= self.last


Group = tuple[Span, ...]
"""Spans with fixed distances. Those busy at the same time do not overlap."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each group starts, in the order given, and the bytes of all; both in bytes."""

    size: int
    starts: tuple[int, ...]


def place(groups: Sequence[Group]) -> Arena:
    """Give every group a place: larger ones first, each at the lowest free multiple of `ALIGN`."""
    starts = [0] * len(groups)
    taken: list[Span] = []
    for index in sorted(range(len(groups)), key=lambda i: -_extent(groups[i])):
        start = _lowest_start(groups[index], taken)
        starts[index] = start
        taken += [Span(start + s.offset, s.size, s.first, s.last) for s in groups[index] if s.size]
    size = max((span.offset + span.size for span in taken), default=0)
    return Arena(size, tuple(starts))


def _extent(group: Group) -> int:
    return max((span.offset + span.size for span in group), default=0)


def _lowest_start(group: Group, taken: Sequence[Span]) -> int:
    # Each pair that is busy at the same time forbids an open interval of starts.
    forbidden = sorted(
        (other.offset - span.offset - span.size, other.offset + other.size - span.offset)
        for span in group
        for other in taken
        if span.size and span.meets(other)
    )
    start = 0
    for low, high in forbidden:
        if low >= start:  # and so are the lower ends of all that follow
            break
        start = max(start, -(-high // ALIGN) * ALIGN)
    return start
