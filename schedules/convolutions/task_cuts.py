"""Cuts of an axis into more parts, where the other axis has too few parts for the threads.

With two threads, strips of pixels or groups of channels are always enough. With sixteen, 49 pixels
are four register tiles and 64 channels two: only both together make a task for every thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from neocpu.schedules.estimates.loop_threads import MANY_THREADS
from neocpu.schedules.vocabulary.layout import ceil_div

# The largest ratio of the busiest thread's share to an equal one.
UNEVEN: Final = 1.1
# The largest multiple of the parts that is tried.
TIMES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# The share of the busiest thread's work that a finer cut must save.
WORTH: Final = 0.05


def finer_cut(parts: int, most: int, threads: int, share: Callable[[int], float]) -> int:
    """Return the smallest multiple of ``parts`` that leaves no thread much more than its share, or
    the one that leaves the busiest least; ``share`` returns that of up to ``most`` parts.
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


def busiest_share(starts: Sequence[int], blocks: int, strips: int, threads: int) -> float:
    """Return the busiest thread's share of all products.

    A task computes one of ``strips`` of ``blocks`` pixel blocks, for one group of channel blocks.
    ``starts`` has where groups start, and the end.
    """

    def before(task: int) -> int:
        group, strip = divmod(task, strips)
        first, end = starts[group], starts[min(group + 1, len(starts) - 1)]
        return first * blocks + (end - first) * (strip * blocks // strips)

    tasks = strips * (len(starts) - 1)
    done = [*map(before, range(0, tasks, ceil_div(tasks, threads))), before(tasks)]
    return max(end - start for start, end in pairwise(done)) / done[-1]
