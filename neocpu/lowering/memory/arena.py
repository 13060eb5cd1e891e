"""Places for tensors in one block of memory, so that those in use at the same time do not overlap.

Larger ones come first, each at the lowest place that is free (Pisarchyk and Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020), within a few per cent of the lower bound for
networks like ours. The unit is a `Group` of tensors at fixed distances: parts of a concatenation
are written where the whole is read, and each is busy only as long as it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.layout import ceil_div

ALIGN: Final = 128
"""The alignment of groups in bytes: two cache lines, which CPUs prefetch together."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that are busy for a while."""

    offset: int  # from the start of the group
    size: int
    first: int  # the first step at which they are busy
    last: int  # the last one


Group = tuple[Span, ...]
"""Spans at fixed distances. Only the two sides of a selection may overlap while both are busy."""


@dataclass(frozen=True, slots=True)
class Arena:
    """The places of groups. `size` is in bytes, and `starts` has the first byte of each group."""

    size: int
    starts: tuple[int, ...]


def place(groups: Sequence[Group]) -> Arena:
    """Place all groups, larger ones first, each at the lowest free multiple of `ALIGN`."""
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


def place_separately(groups: Sequence[Group]) -> Arena:
    """Place all groups one after another, whenever they are busy."""
    starts, end = [], 0
    for group in groups:
        starts.append(end)
        end += ceil_div(_extent(group), ALIGN) * ALIGN
    return Arena(end, tuple(starts))


class _Taken:
    """The spans that are placed, as columns of arrays: a network may have tens of thousands."""

    def __init__(self, capacity: int) -> None:
        self._columns = np.zeros((4, capacity), np.int64)
        self._count = 0

    def add(self, span: Span) -> None:
        ends = span.offset + span.size
        self._columns[:, self._count] = (span.first, span.last, span.offset, ends)
        self._count += 1

    def meeting(self, span: Span) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    # For each forbidden range, the lowest start after all ranges before it; the last is after all.
    after = np.maximum.accumulate(-(-high[order] // ALIGN) * ALIGN)
    starts = np.concatenate([[0], np.maximum(after, 0)])
    free = np.flatnonzero(low[order] >= starts[:-1])  # all later ranges begin above these, too
    return int(starts[free[0]] if free.size else starts[-1])
