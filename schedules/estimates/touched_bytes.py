"""How many bytes the accesses of a loop nest touch, and how many of them caches have to fetch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neocpu.schedules.estimates.memory_traffic import LINE


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop that is being read; without a variable, what is done so many times on average.

    Attributes
    ----------
    var : Var or None
    extent : float
    parallel : bool
    """

    var: Any
    extent: float
    parallel: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A load or a store within loops.

    Attributes
    ----------
    buffer : Any
        What tells buffers apart.
    is_parameter : bool
        Whether the kernel's caller gave it.
    start : float
        Its first element; -1 where data decide it.
    width : int
        Bytes of each access.
    whole : float
        Bytes of the buffer.
    strides : tuple of float
        Bytes between two iterations of each loop, outermost first; 0 where it does not depend on
        the loop, and no number where data decide.
    loops : tuple of Loop
        Around it.
    """

    buffer: Any
    is_parameter: bool
    start: float
    width: int
    whole: float
    strides: tuple[float, ...]
    loops: tuple[Loop, ...]

    def footprint(self, first: int) -> float:
        """Return the bytes touched by all iterations of the loops from ``first`` on."""
        pairs = [
            (stride, loop.extent)
            for stride, loop in zip(self.strides[first:], self.loops[first:], strict=True)
        ]
        steps = sorted((stride, count) for stride, count in pairs if stride > 0 and count > 1)
        scattered = math.prod(count for stride, count in pairs if math.isnan(stride))
        distinct = reach = float(self.width)
        if not steps or steps[0][0] > self.width:  # a line is the least that moves
            apart = steps[0][0] if steps and scattered == 1 else LINE
            distinct = reach = min(float(max(LINE, self.width)), max(apart, self.width))
        for stride, count in steps:
            grown = stride * (count - 1)
            distinct *= count if stride > reach else 1 + grown / reach
            reach += grown
        return min(self.whole, distinct * scattered)


def touched(accesses: Iterable[Access]) -> float:
    """Return the bytes that accesses touch, those of a buffer that begin alike once."""
    found: dict[Any, dict[float, float]] = {}
    wholes: dict[Any, float] = {}
    for access in accesses:
        parts = found.setdefault(access.buffer, {})
        parts[access.start] = max(parts.get(access.start, 0.0), access.footprint(0))
        wholes[access.buffer] = access.whole
    return math.fsum(min(wholes[one], math.fsum(parts.values())) for one, parts in found.items())


def compacted(accesses: Sequence[Access]) -> list[Access]:
    """Return the accesses of a buffer that a kernel has to itself, as TVM makes it.

    Of the loops around all accesses, it is as large as one iteration needs.
    """
    shared = 0
    for loops in zip(*(access.loops for access in accesses), strict=False):
        if any(loop is not loops[0] for loop in loops):
            break
        shared += 1
    if len(accesses) < 2:
        return list(accesses)
    return [
        replace(access, strides=(0.0,) * shared + access.strides[shared:]) for access in accesses
    ]


def fetched_again(accesses: Sequence[Access], cache: int) -> float:
    """Return the bytes that a statement's accesses fetch into a thread's cache more than once.

    What all iterations of some inner loops touch stays as long as these run. The loop around them
    fetches what it moves on by, and those around that all of it again.
    """
    depth = len(accesses[0].loops)
    inside = [access.footprint(depth) for access in accesses]
    for place in range(depth - 1, -1, -1):
        wider = [access.footprint(place) for access in accesses]
        if math.fsum(wider) > cache:
            break
        inside, depth = wider, place
    total = 0.0
    for access, held in zip(accesses, inside, strict=True):
        if any(map(math.isnan, access.strides)):
            continue  # what data choose lies close to what they chose before, as far as we know
        if depth:
            count, stride = access.loops[depth - 1].extent, access.strides[depth - 1]
            held += (count - 1) * min(held, stride)
        again = math.prod(loop.extent for loop in access.loops[: max(0, depth - 1)])
        total += max(0.0, held * again - access.footprint(0))
    return total
