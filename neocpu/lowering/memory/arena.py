"""Where tensors lie in one block of memory, so that those alive at the same time do not overlap.

Greedy by size, lowest place that is free (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020): within a few per cent of the lower bound in networks like ours. What
is placed is not one tensor but a `Group` of them with fixed distances: the parts of a concatenation
are written to where the joined tensor is read, and each part is busy only as long as it needs be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

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


Group = tuple[Span, ...]
"""Spans with fixed distances. Of those busy at a time only sides of a selection overlap."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each group starts, in the order given, and the bytes of all; both in bytes."""

    size: int
    starts: tuple[int, ...]


def place(groups: Sequence[Group]) -> Arena:
    """Give every group a place: larger ones first, each at the lowest free multiple of `ALIGN`."""
    starts = [0] * len(groups)
    taken = _Taken(sum(map(len, groups)))
    for index in sorted(range(len(groups)), key=lambda i: -_extent(groups[i])):
        start = _lowest_start(groups[index], taken)
        starts[index] = start
        for span in groups[index]:
            if span.size:
                taken.add(replace(span, offset=start + span.offset))
    ends = (start + _extent(group) for start, group in zip(starts, groups, strict=True))
    return Arena(max(ends, default=0), tuple(starts))


class _Taken:
    """The spans that have their place, as columns: a network may have tens of thousands."""

    def __init__(self, capacity: int) -> None:
        self._columns = np.zeros((4, capacity), np.int64)
        self._count = 0

    def add(self, span: Span) -> None:
        """Add a span, its offset from the start of the arena."""
        ends = span.offset + span.size
        self._columns[:, self._count] = (span.first, span.last, span.offset, ends)
        self._count += 1

    def meeting(self, span: Span) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where those that are busy when ``span`` is begin and end."""
        first, last, begins, ends = self._columns[:, : self._count]
        busy = (first <= span.last) & (last >= span.first)
        return begins[busy], ends[busy]


def _extent(group: Group) -> int:
    return max((span.offset + span.size for span in group), default=0)


def _lowest_start(group: Group, taken: _Taken) -> int:
    # Each pair that is busy at the same time forbids the starts between `low` and `high`.
    forbidden = [
        (begins - span.offset - span.size, ends - span.offset)
        for span in group
        if span.size
        for begins, ends in [taken.meeting(span)]
    ]
    if not forbidden:
        return 0
    low, high = (np.concatenate(bounds) for bounds in zip(*forbidden, strict=True))
    order = np.argsort(low)
    # The lowest start after all before it, for each, and after all.
    behind = np.maximum.accumulate(-(-high[order] // ALIGN) * ALIGN)
    starts = np.concatenate([[0], np.maximum(behind, 0)])
    free = np.flatnonzero(low[order] >= starts[:-1])  # and so are the lower ends of all that follow
    return int(starts[free[0]] if free.size else starts[-1])
