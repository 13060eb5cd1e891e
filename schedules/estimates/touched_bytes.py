"""The bytes that accesses of a loop nest touch, and the bytes that caches fetch for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neocpu.schedules.estimates.memory_traffic import LINE


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop around accesses; without a variable, a repetition with an average count."""

    var: Any
    extent: float
    parallel: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Access:
    """A load or a store within loops.

    - `buffer`: the identity of the buffer.
    - `is_parameter`: whether the kernel's caller passed the buffer.
    - `start`: the first element; -1 if data decide it.
    - `width`: the bytes of each access.
    - `whole`: the bytes of the buffer.
    - `strides`: the bytes between two iterations of each loop, outermost first: 0 if the access
      does not depend on the loop, NaN if data decide.
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
        if not steps or steps[0][0] > self.width:  # at least a line is moved
            apart = steps[0][0] if steps and scattered == 1 else LINE
            distinct = reach = min(float(max(LINE, self.width)), max(apart, self.width))
        for stride, count in steps:
            grown = stride * (count - 1)
            distinct *= count if stride > reach else 1 + grown / reach
            reach += grown
        return min(self.whole, distinct * scattered)


def touched(accesses: Iterable[Access]) -> float:
    """Return the bytes that accesses touch; those of a buffer with one start count once."""
    found: dict[Any, dict[float, float]] = {}
    wholes: dict[Any, float] = {}
    for access in accesses:
        parts = found.setdefault(access.buffer, {})
        parts[access.start] = max(parts.get(access.start, 0.0), access.footprint(0))
        wholes[access.buffer] = access.whole
    return math.fsum(min(wholes[one], math.fsum(parts.values())) for one, parts in found.items())


def compacted(accesses: Sequence[Access]) -> list[Access]:
    """Return a buffer's accesses after TVM shrinks it to an iteration of the loops around all."""
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
    """Return the bytes that a statement's accesses fetch into a thread's cache repeatedly.

    The bytes that inner loops touch stay in the cache while these run, if they fit. The next loop
    outward fetches the bytes by which it advances, and the loops around that fetch everything
    again.
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
            continue  # data are assumed to choose places close to their previous ones
        if depth:
            count, stride = access.loops[depth - 1].extent, access.strides[depth - 1]
            held += (count - 1) * min(held, stride)
        again = math.prod(loop.extent for loop in access.loops[: max(0, depth - 1)])
        total += max(0.0, held * again - access.footprint(0))
    return total
