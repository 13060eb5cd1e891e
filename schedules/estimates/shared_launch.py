"""What calls take whose loops are shared out together: one launch, and one pool of tasks.

Where each has fewer tasks than there are threads, or is over before all of them have come, the
branches of a block fill the threads side by side.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neocpu.foundation.machines import Machine


@dataclass(frozen=True, slots=True)
class Piece:
    """What a call has for a launch.

    Attributes
    ----------
    tasks : int
        Of its loop, as the pool cuts it; 1 of a call without one.
    seconds : float
        Of all tasks on one thread.
    before : float
        Seconds of what is no task: the calling thread does it alone.
    moving : float
        Seconds that its bytes take to come, on all threads.
    """

    tasks: int
    seconds: float
    before: float = 0.0
    moving: float = 0.0

    @property
    def longest(self) -> float:
        """Seconds of a task."""
        return self.seconds / self.tasks


def busiest_seconds(pieces: Sequence[Piece], threads: int) -> float:
    """Return when the last task is done, if each thread takes the next one when it is free.

    Parameters
    ----------
    pieces : sequence of Piece
        In the order in which their tasks are taken: the longest ones first.
    """
    # Threads that are done at one time are counted together: there are few such times.
    free = [(0.0, threads)]
    for piece in pieces:
        left = piece.tasks
        while left > 0:
            when, count = heapq.heappop(free)
            taken = min(left, count)
            heapq.heappush(free, (when + piece.longest, taken))
            if taken < count:
                heapq.heappush(free, (when, count - taken))
            left -= taken
    return max(when for when, _ in free)


def launch_seconds(pieces: Iterable[Piece], machine: Machine, threads: int) -> float:
    """Return what a launch of several calls, or of one, takes on several threads."""
    ordered = sorted(pieces, key=lambda piece: -piece.longest)
    sharers = min(threads, sum(piece.tasks for piece in ordered))
    alone = math.fsum(piece.before for piece in ordered)
    moving = math.fsum(piece.moving for piece in ordered)
    busy = max(busiest_seconds(ordered, threads), moving)
    return alone + busy + machine.fork_seconds(sharers)
