"""The time of calls that share one launch: their tasks form one pool.

Sharing helps where each call has fewer tasks than there are threads, or is finished before all
threads have started: the branches of a block then fill the threads side by side.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neocpu.foundation.machine.machines import Machine


@dataclass(frozen=True, slots=True)
class Piece:
    """The contribution of a call to a launch.

    - `tasks`: the number of tasks into which the pool cuts its loop; 1 for a call without a loop.
    - `seconds`: the time of all tasks on one thread.
    - `before`: the time in seconds outside tasks, which the calling thread spends alone.
    - `moving`: the time in seconds that its bytes take to arrive, on all threads.
    """

    tasks: int
    seconds: float
    before: float = 0.0
    moving: float = 0.0

    @property
    def longest(self) -> float:
        return self.seconds / self.tasks


def busiest_seconds(pieces: Sequence[Piece], threads: int) -> float:
    """Return the time at which the last task ends if idle threads always take the next task.

    `pieces` are the pieces in the order in which their tasks are taken, longest tasks first.
    """
    # Threads that finish at the same time are counted together: there are few such times.
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
    """Return the time of a launch of one or several calls on several threads, in seconds."""
    ordered = sorted(pieces, key=lambda piece: -piece.longest)
    sharers = min(threads, sum(piece.tasks for piece in ordered))
    alone = math.fsum(piece.before for piece in ordered)
    moving = math.fsum(piece.moving for piece in ordered)
    busy = max(busiest_seconds(ordered, threads), moving)
    return alone + busy + machine.fork_seconds(sharers)
