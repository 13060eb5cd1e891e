"""A prediction of a run on several threads, from the times of its loops on one thread.

A loop ends with its busiest thread, which has ``ceil(n / threads)`` of ``n`` tasks. Entering and
leaving it takes longer with every thread; code between loops as long as on one. Data come from
memory and from L3, which cores share, and what one thread finds in its own L2 is spread over all L2
caches. The longest of computation and transfers hides most of the others. That caches hold more of
a smaller part is ignored.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from neocpu.foundation.machine.machines import Machine
from neocpu.schedules.estimates.memory_traffic import EXPOSED, overlapped
from neocpu.schedules.vocabulary.target import kept_share


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
    """Return when the last task ends if idle threads take the next; `pieces` are longest first."""
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
    """Return the time of a launch of calls on several threads, in seconds. Sharing one helps where
    a call has fewer tasks than threads, or is done before all have started.
    """
    ordered = sorted(pieces, key=lambda piece: -piece.longest)
    sharers = min(threads, sum(piece.tasks for piece in ordered))
    alone = math.fsum(piece.before for piece in ordered)
    moving = math.fsum(piece.moving for piece in ordered)
    busy = max(busiest_seconds(ordered, threads), moving)
    return alone + busy + machine.fork_seconds(sharers)


Limit = Literal["one thread", "few tasks", "uneven tasks", "other cores", "bandwidth", "fork-join"]
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
"""The reasons why a run on several threads is not proportionally faster: code outside loops, loops
with fewer tasks than threads, numbers of tasks that are no multiple of the threads, data in other
cores' caches, caches and memory, and entering and leaving loops."""

RUNTIME: Final = "runtime"
"""The name of the time between calls."""

# Constants of the pool (core/src/pool.c): tasks in a thread's share, and the most tasks of a loop.
SHARE: Final = 8
MAX_TASKS: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class LoopTime:
    """A parallel loop of a call.

    - `iterations`: 0 if unknown, for a loop with as many tasks as threads.
    - `seconds`: the time on one thread, over all entries in a run.
    - `entered`: the number of entries.
    """

    iterations: int
    seconds: float
    entered: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """A call of a kernel, however often a run makes it.

    - `name`, `kernel`: the names of the plan's operator and of its function.
    - `seconds`: the time on one thread, over all times; it includes the time of its loops.
    - `weights`, `others`: the bytes of weights that it reads, and of all other data that it reads
      and writes, each time.
    """

    name: str
    kernel: str
    seconds: float
    loops: tuple[LoopTime, ...] = ()
    weights: int = 0
    others: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class RunTime:
    """A run on one thread. `between` is the time between calls, in seconds. `launches` has the
    calls that several threads would make in one launch: the position of the first, and how many.
    """

    calls: tuple[CallTime, ...]
    between: float = 0.0
    launches: tuple[tuple[int, int], ...] = ()

    @property
    def seconds(self) -> float:
        return math.fsum(call.seconds for call in self.calls) + self.between

    def slower(self, factor: float) -> RunTime:
        """Return the run on a core for which everything takes ``factor`` times as long."""

        def loop(one: LoopTime) -> LoopTime:
            return replace(one, seconds=one.seconds * factor)

        calls = (
            replace(call, seconds=call.seconds * factor, loops=tuple(map(loop, call.loops)))
            for call in self.calls
        )
        return replace(self, calls=tuple(calls), between=self.between * factor)


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """The predicted time of a call, or between calls (`RUNTIME`), on several threads; `lost` are
    the seconds in excess of its share of one thread's time, by reason.
    """

    call: CallTime
    seconds: float
    lost: Mapping[Limit, float]


@dataclass(frozen=True, slots=True)
class ParallelRun:
    """The predicted times of a run on several threads; the last of `calls` is that between them."""

    threads: int
    calls: tuple[ParallelCall, ...]

    @property
    def seconds(self) -> float:
        return math.fsum(call.seconds for call in self.calls)

    @property
    def lost(self) -> dict[Limit, float]:
        """The seconds in excess of an equal share of one thread's time, by reason."""
        return {limit: math.fsum(call.lost[limit] for call in self.calls) for limit in LIMITS}


def predict_run(run: RunTime, machine: Machine, threads: int) -> ParallelRun:
    """Return the predicted times of a run on several threads, each on a core of its own. `run` is
    the run on one thread of that machine, with kernels compiled for this many threads.
    """
    between = CallTime(name=RUNTIME, kernel=RUNTIME, seconds=run.between)
    ways = _Ways(machine, threads, sum(call.weights for call in run.calls))
    calls = [_predict_call(call, ways) for call in (*run.calls, between)]
    for first, count in run.launches if threads > 1 else ():
        together = run.calls[first : first + count]
        calls[first : first + count] = _predict_launch(together, ways)
    return ParallelRun(threads, tuple(calls))


@dataclass(frozen=True, slots=True)
class _Ways:
    """The transfers of bytes to several threads of a machine, in a run of a network. `weights`
    counts the bytes of all weights of the network.
    """

    machine: Machine
    threads: int
    weights: int

    def moving_seconds(self, call: CallTime) -> tuple[float, float]:
        """Return a call's seconds of bytes from memory and from L3, which keeps some weights."""
        machine, caches = self.machine, self.machine.caches(self.threads)
        kept = kept_share(self.weights, machine.l3 * caches)
        memory, cache = (share * call.weights for share in (1 - kept, kept))
        if call.others > machine.l3 * caches:
            memory += call.others
        elif call.others > machine.l2 * self.threads:
            cache += call.others
        return (
            call.times * memory / machine.memory_rate(self.threads),
            call.times * cache / machine.cache_rate(self.threads),
        )

    def fetching_seconds(self, call: CallTime) -> float:
        """Return the time that feature maps take to come from other cores' caches, each equally
        likely to have a line, and those in another L3 at the speed of memory.
        """
        machine, threads = self.machine, self.threads
        caches = machine.caches(threads)
        if call.others > machine.l3 * caches:
            return 0.0
        near, far = 1 / caches - 1 / threads, 1 - 1 / caches
        if call.others > machine.l2 * threads:
            near = 0.0  # in L3
        fetched = near / (threads * machine.peer_core) + far / machine.memory_rate(threads)
        return call.times * call.others * fetched


def _predict_call(call: CallTime, ways: _Ways) -> ParallelCall:
    machine, threads = ways.machine, ways.threads
    lost: dict[Limit, float] = dict.fromkeys(LIMITS, 0.0)
    alone = max(0.0, call.seconds - math.fsum(loop.seconds for loop in call.loops))
    lost["one thread"] = alone * (1 - 1 / threads)
    busy = 0.0
    for loop in call.loops:
        part = busiest_part(loop.iterations, threads)
        few = 0 < loop.iterations < threads
        lost["few tasks" if few else "uneven tasks"] += loop.seconds * (part - 1 / threads)
        # Threads without a task delay nobody; a loop of one iteration is entered like other code.
        sharers = min(loop.iterations or threads, threads)
        lost["fork-join"] += loop.entered * machine.fork_seconds(sharers)
        busy += loop.seconds * part
    share = _computing_share(call, replace(ways, threads=1).moving_seconds(call))
    parts = share * (busy + alone), *ways.moving_seconds(call)
    # One thread's total time bounds the speed at which its bytes arrive.
    together = min(call.seconds, overlapped(*parts))
    lost["bandwidth"] = max(0.0, together - busy - alone)
    if call.loops:
        fetched = ways.fetching_seconds(call)
        lost["other cores"] = overlapped(*parts, fetched) - overlapped(*parts)
    return ParallelCall(call, call.seconds / threads + math.fsum(lost.values()), lost)


def _computing_share(call: CallTime, moving: Sequence[float]) -> float:
    """Return the share of one thread's time that a call would take with all data in L2. The
    remaining time was spent on transfers that nothing hid: see `overlapped`.
    """
    if call.seconds == 0.0:
        return 0.0
    longest, rest = max(moving), EXPOSED * math.fsum(moving)
    computing = call.seconds - rest
    if computing < longest:
        computing = (call.seconds - longest - (rest - EXPOSED * longest)) / EXPOSED
    return max(0.0, computing) / call.seconds


def _predict_launch(calls: Sequence[CallTime], ways: _Ways) -> Iterator[ParallelCall]:
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
    """Return the share of a loop that its busiest thread computes, as idle threads take tasks that
    others have not begun; 0 iterations means an unknown number.
    """
    if threads == 1:
        return 1.0
    if iterations == 0:
        return 1 / threads
    size = _task_size(iterations, threads)
    rounds = math.ceil(math.ceil(iterations / size) / threads)
    return min(1.0, rounds * size / iterations)


def task_count(iterations: int, threads: int) -> int:
    """Return the number of tasks that the pool cuts a loop into; 0 ``iterations`` means unknown."""
    if threads == 1 or iterations == 0:
        return threads
    return math.ceil(iterations / _task_size(iterations, threads))


def _task_size(iterations: int, threads: int) -> int:
    most = max(iterations // (threads * SHARE), math.ceil(iterations / MAX_TASKS), 1)
    sizes: Iterable[int] = range(most, most // 2, -1)
    return min(sizes, key=lambda size: math.ceil(math.ceil(iterations / size) / threads) * size)
