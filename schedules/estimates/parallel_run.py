"""What a run takes on several threads of a machine, by what its loops take on one.

A kernel's loop ends with its busiest thread: of ``n`` tasks, ``ceil(n / threads)``. Entering and
leaving it takes longer with every thread. What lies between the loops takes as long as on one
thread. Meanwhile its bytes come from memory and from L3, which several cores have to share, and
feature maps that one thread finds in its own L2 are on several in those of all. Where tasks go
through the images of a batch one after another, a thread has the same ones in each kernel: their
maps come from those few that share them, and weights go to every L3. Of computing and these ways
the longest hides most of the others, as estimates have it. That a thread's caches hold more of a
smaller part is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from neocpu.foundation.machines import Machine
from neocpu.schedules.estimates.memory_traffic import EXPOSED, overlapped
from neocpu.schedules.estimates.shared_launch import Piece, busiest_seconds, launch_seconds
from neocpu.schedules.vocabulary.target import kept_share

Limit = Literal["one thread", "few tasks", "uneven tasks", "other cores", "bandwidth", "fork-join"]
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
"""What keeps a run on so many threads from taking as many times less: what no loop is part of,
loops of fewer tasks than threads, tasks that are no multiple of the threads, what other cores have
in their caches, caches and memory, and entering and leaving loops."""

RUNTIME: Final = "runtime"
"""The name of what lies between the calls."""

# The pool's (core/src/pool.c): tasks of a thread's share, and the most that a loop is cut into.
SHARE: Final = 8
MAX_TASKS: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class LoopTime:
    """A parallel loop of a call.

    Attributes
    ----------
    iterations : int
        0 of a loop of which they are unknown: it has as many tasks as there are threads.
    seconds : float
        On one thread, of all times that a run enters it.
    entered : int
        How often that is.
    largest : float
        How many times the mean of all iterations the largest one takes.
    """

    iterations: int
    seconds: float
    entered: int = 1
    largest: float = 1.0

    def busiest_part(self, threads: int) -> float:
        """Return which part of the loop its busiest thread computes.

        Its iterations lie side by side: they are no more than those of another thread by as much as
        one of them may be.
        """
        if threads == 1 or self.iterations == 0:
            return busiest_part(self.iterations, threads)
        more = (self.largest - 1) / self.iterations
        return min(1.0, busiest_part(self.iterations, threads) + more)


@dataclass(frozen=True, slots=True)
class CallTime:
    """A call of a kernel, however often a run makes it.

    Attributes
    ----------
    name, kernel : str
        Of the plan's operator, and of its function.
    seconds : float
        On one thread, of all times; those of its loops are part of it.
    loops : tuple of LoopTime
    weights, others : int
        Bytes of the weights that it reads, and of all else that it reads and writes, each time.
    times : int
    images : int
        Images that its tasks go through one after another; 1 if they do not.
    """

    name: str
    kernel: str
    seconds: float
    loops: tuple[LoopTime, ...] = ()
    weights: int = 0
    others: int = 0
    times: int = 1
    images: int = 1


@dataclass(frozen=True, slots=True)
class RunTime:
    """A run on one thread.

    Attributes
    ----------
    calls : tuple of CallTime
        In turn.
    between : float
        Seconds of what lies between them.
    launches : tuple of (int, int)
        Calls that several threads would make together: the first one's position, and how many.
    """

    calls: tuple[CallTime, ...]
    between: float = 0.0
    launches: tuple[tuple[int, int], ...] = ()

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return math.fsum(call.seconds for call in self.calls) + self.between

    def slower(self, factor: float) -> RunTime:
        """Return the run on a core that takes so many times as long for everything."""

        def loop(one: LoopTime) -> LoopTime:
            return replace(one, seconds=one.seconds * factor)

        calls = (
            replace(call, seconds=call.seconds * factor, loops=tuple(map(loop, call.loops)))
            for call in self.calls
        )
        return replace(self, calls=tuple(calls), between=self.between * factor)


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """What a call is predicted to take on several threads.

    Attributes
    ----------
    call : CallTime
        Or of what lies between them, whose name is `RUNTIME`.
    seconds : float
    lost : mapping of Limit to float
        Seconds that it takes longer than its share of one thread's time, by why.
    """

    call: CallTime
    seconds: float
    lost: Mapping[Limit, float]


@dataclass(frozen=True, slots=True)
class ParallelRun:
    """What a run is predicted to take on several threads.

    Attributes
    ----------
    calls : tuple of ParallelCall
        In turn, and what lies between them.
    """

    threads: int
    calls: tuple[ParallelCall, ...]

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return math.fsum(call.seconds for call in self.calls)

    @property
    def lost(self) -> dict[Limit, float]:
        """Seconds that it takes longer than its share of one thread's time, by why."""
        return {limit: math.fsum(call.lost[limit] for call in self.calls) for limit in LIMITS}


def predict_run(run: RunTime, machine: Machine, threads: int) -> ParallelRun:
    """Return what a run takes on several threads, each on a core of its own.

    Parameters
    ----------
    run : RunTime
        On one thread of that machine, of kernels that were compiled for so many threads.
    """
    between = CallTime(RUNTIME, RUNTIME, run.between)
    ways = _Ways(machine, threads, sum(call.weights for call in run.calls))
    images = [1, *(call.images for call in run.calls)]  # of the call before each
    calls = [
        _predict_call(call, ways, before)
        for call, before in zip((*run.calls, between), images, strict=True)
    ]
    for first, count in run.launches if threads > 1 else ():
        together = run.calls[first : first + count]
        calls[first : first + count] = _predict_launch(together, ways)
    return ParallelRun(threads, tuple(calls))


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways of bytes to so many threads of a machine, in a run of a network.

    Attributes
    ----------
    weights : int
        Bytes of all of the network's.
    """

    machine: Machine
    threads: int
    weights: int

    def moving_seconds(self, call: CallTime) -> tuple[float, float]:
        """Return what a call's bytes take to come, from memory and from L3.

        L3 keeps some of the network's weights from one run to the next. Where tasks go through the
        images, each needs all weights: every L3 has a copy.
        """
        machine, caches = self.machine, self.machine.caches(self.threads)
        copies = caches if call.images > 1 else 1
        kept = kept_share(self.weights, machine.l3 * caches / copies)
        memory, cache = (share * call.weights * copies for share in (1 - kept, kept))
        if call.others > machine.l3 * caches:
            memory += call.others
        elif call.others > machine.l2 * self.threads:
            cache += call.others
        return (
            call.times * memory / machine.memory_rate(self.threads),
            call.times * cache / machine.cache_rate(self.threads),
        )

    def fetching_seconds(self, call: CallTime, images: int = 1) -> float:
        """Return what feature maps that caches hold take to come from those of other cores.

        Any core that has a part in an image had a line last, written or to be written over, as
        likely as any other; those of another L3 have it over memory's way.

        Parameters
        ----------
        images : int
            That the call and the one before it both go through one after another.
        """
        machine, threads = self.machine, self.threads
        if call.others > machine.l3 * machine.caches(threads):
            return 0.0
        cores = math.ceil(threads / images)
        caches = machine.caches(cores)
        near, far = 1 / caches - 1 / cores, 1 - 1 / caches
        if call.others > machine.l2 * threads:
            near = 0.0  # in L3
        fetched = near / (threads * machine.peer_core) + far / machine.memory_rate(threads)
        return call.times * call.others * fetched


def _predict_call(call: CallTime, ways: _Ways, before: int) -> ParallelCall:
    """Return what a call takes after one that goes through so many images one after another."""
    machine, threads = ways.machine, ways.threads
    lost: dict[Limit, float] = dict.fromkeys(LIMITS, 0.0)
    alone = max(0.0, call.seconds - math.fsum(loop.seconds for loop in call.loops))
    lost["one thread"] = alone * (1 - 1 / threads)
    busy = 0.0
    for loop in call.loops:
        part = loop.busiest_part(threads)
        few = 0 < loop.iterations < threads
        lost["few tasks" if few else "uneven tasks"] += loop.seconds * (part - 1 / threads)
        # Threads that get no task hold nobody up; a loop of one is entered like any other code.
        sharers = min(loop.iterations or threads, threads)
        lost["fork-join"] += loop.entered * machine.fork_seconds(sharers)
        busy += loop.seconds * part
    share = _computing_share(call, replace(ways, threads=1).moving_seconds(call))
    parts = share * (busy + alone), *ways.moving_seconds(call)
    # That one thread took no longer for all of it tells how fast its bytes come at least.
    together = min(call.seconds, overlapped(*parts))
    lost["bandwidth"] = max(0.0, together - busy - alone)
    if call.loops:
        fetched = ways.fetching_seconds(call, min(before, call.images))
        lost["other cores"] = overlapped(*parts, fetched) - overlapped(*parts)
    return ParallelCall(call, call.seconds / threads + math.fsum(lost.values()), lost)


def _computing_share(call: CallTime, moving: Sequence[float]) -> float:
    """Return which share of one thread's time a call would take were all data in L2.

    The rest of what it took, its bytes did that nothing hid: see `overlapped`.
    """
    if call.seconds == 0.0:
        return 0.0
    longest, rest = max(moving), EXPOSED * math.fsum(moving)
    computing = call.seconds - rest
    if computing < longest:
        computing = (call.seconds - longest - (rest - EXPOSED * longest)) / EXPOSED
    return max(0.0, computing) / call.seconds


def _predict_launch(calls: Sequence[CallTime], ways: _Ways) -> Iterator[ParallelCall]:
    """Yield what calls take that are launched together: of that, each has its part of the work."""
    machine, threads = ways.machine, ways.threads
    pieces = [_piece(call, ways) for call in calls]
    seconds = launch_seconds(pieces, machine, threads)
    tasks = sum(piece.tasks for piece in pieces)
    fork = machine.fork_seconds(min(tasks, threads))
    whole = math.fsum(call.seconds for call in calls)
    alone = math.fsum(piece.before for piece in pieces) * (1 - 1 / threads)
    left = seconds - whole / threads - fork - alone
    moves = math.fsum(piece.moving for piece in pieces) >= busiest_seconds(pieces, threads)
    why: Limit = "bandwidth" if moves else "few tasks" if tasks < threads else "uneven tasks"
    for call in calls:
        part = call.seconds / whole if whole else 1 / len(calls)
        lost: dict[Limit, float] = dict.fromkeys(LIMITS, 0.0)
        lost |= {"one thread": alone * part, "fork-join": fork * part, why: left * part}
        yield ParallelCall(call, seconds * part, lost)


def _piece(call: CallTime, ways: _Ways) -> Piece:
    moving = math.fsum((*ways.moving_seconds(call), ways.fetching_seconds(call)))
    moving = min(call.seconds, moving)
    if len(call.loops) != 1:
        return Piece(1, call.seconds, 0.0, moving)
    (loop,) = call.loops
    alone = max(0.0, call.seconds - loop.seconds)
    return Piece(task_count(loop.iterations, ways.threads), loop.seconds, alone, moving)


def busiest_part(iterations: int, threads: int) -> float:
    """Return which part of a loop its busiest thread computes.

    As the pool cuts loops into tasks; whoever is done takes what others have not begun.

    Parameters
    ----------
    iterations : int
        0 if they are unknown.
    """
    if threads == 1:
        return 1.0
    if iterations == 0:
        return 1 / threads
    size = _task_size(iterations, threads)
    rounds = math.ceil(math.ceil(iterations / size) / threads)
    return min(1.0, rounds * size / iterations)


def task_count(iterations: int, threads: int) -> int:
    """Return how many tasks the pool cuts a loop into; ``iterations`` are 0 if they are unknown."""
    if threads == 1 or iterations == 0:
        return threads
    return math.ceil(iterations / _task_size(iterations, threads))


def _task_size(iterations: int, threads: int) -> int:
    """Return the iterations of a task: those that leave the busiest thread the least."""
    most = max(iterations // (threads * SHARE), math.ceil(iterations / MAX_TASKS), 1)
    sizes: Iterable[int] = range(most, most // 2, -1)
    return min(sizes, key=lambda size: math.ceil(math.ceil(iterations / size) / threads) * size)
