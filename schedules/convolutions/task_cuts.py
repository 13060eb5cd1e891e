"""Into how many parts an axis is cut that tasks take whole, where the other one has too few parts.

With two threads, strips of pixels or groups of channels are always enough. With sixteen, 49 pixels
are four register tiles and 64 channels two: only both together make a task for every thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from neocpu.schedules.estimates.loop_threads import MANY_THREADS

# How many times its share the busiest thread may have.
UNEVEN: Final = 1.1
# How many times as many parts are tried.
TIMES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Of the busiest thread's share, what a finer cut has to save.
WORTH: Final = 0.05


def finer_cut(parts: int, most: int, threads: int, share: Callable[[int], float]) -> int:
    """Return the smallest multiple of ``parts`` after which no thread has much more than its share.

    Or, where none is so good, the one after which the busiest has the least.

    Parameters
    ----------
    parts : int
        Into which the axis is cut anyway.
    most : int
        Parts that it can be cut into.
    share : callable
        Return which part of all the busiest thread has after a cut.
    """
    if threads < MANY_THREADS or parts >= most:
        return parts
    best, least = parts, share(parts)
    for times in TIMES:
        if least * threads <= UNEVEN:
            break
        finer = min(parts * times, most)
        found = share(finer)
        if found < (1 - WORTH) * least:
            best, least = finer, found
        if finer == most:
            break
    return best
