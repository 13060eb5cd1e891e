"""What a run takes on several threads of a machine, by what its loops take on one.

A kernel's loop ends with its busiest thread: of ``n`` tasks, ``ceil(n / threads)``. It is no faster
than its bytes come from where they are, and entering and leaving it takes longer with every thread.
What lies between the loops takes as long as on one thread. That a thread's caches hold more of a
smaller part, and that what another core wrote is in that one's caches, is left out: the two about
cancel out on two cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from neocpu.foundation.machines import Machine
from neocpu.schedules.vocabulary.target import kept_share

Limit = Literal["one thread", "few tasks", "uneven tasks", "bandwidth", "fork-join"]
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
"""What keeps a run on so many threads from taking as many times less: what no loop is part of,
loops of fewer tasks than threads, tasks that are no multiple of the threads, caches and memory, and
entering and leaving loops."""

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
    """

    iterations: int
    seconds: float
    entered: int = 1


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
    """A run on one thread.

    Attributes
    ----------
    calls : tuple of CallTime
        In turn.
    between : float
        Seconds of what lies between them.
    """

    calls: tuple[CallTime, ...]
    between: float = 0.0

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
        return RunTime(tuple(calls), self.between * factor)


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
    weights = sum(call.weights for call in run.calls)
    kept = kept_share(weights, machine.l3 * machine.caches(threads))
    between = CallTime(RUNTIME, RUNTIME, run.between)
    calls = (_predict_call(call, machine, threads, kept) for call in (*run.calls, between))
    return ParallelRun(threads, tuple(calls))


def _predict_call(call: CallTime, machine: Machine, threads: int, kept: float) -> ParallelCall:
    lost: dict[Limit, float] = dict.fromkeys(LIMITS, 0.0)
    alone = max(0.0, call.seconds - math.fsum(loop.seconds for loop in call.loops))
    lost["one thread"] = alone * (1 - 1 / threads)
    busy = 0.0
    for loop in call.loops:
        part = busiest_part(loop.iterations, threads)
        few = 0 < loop.iterations < threads
        lost["few tasks" if few else "uneven tasks"] += loop.seconds * (part - 1 / threads)
        # Threads that get no task hold nobody up; a loop of one is entered like any other code.
        sharers = min(loop.iterations or threads, threads)
        lost["fork-join"] += loop.entered * machine.fork_seconds(sharers)
        busy += loop.seconds * part
    # That one thread took no longer for all of it tells how fast its bytes come at least.
    moving = min(call.seconds, call.times * _moving_seconds(call, machine, threads, kept))
    lost["bandwidth"] = max(0.0, moving - busy - alone)
    return ParallelCall(call, call.seconds / threads + math.fsum(lost.values()), lost)


def _moving_seconds(call: CallTime, machine: Machine, threads: int, kept: float) -> float:
    """Return what a call's bytes take to come, once each, from where they are.

    Parameters
    ----------
    kept : float
        Which share of the network's weights L3 keeps from one run to the next.
    """
    shared = machine.l3 * machine.caches(threads)
    memory, cache = (1 - kept) * call.weights, kept * call.weights
    if call.others > shared:
        memory += call.others
    elif call.others > machine.l2 * threads:
        cache += call.others
    return max(memory / machine.memory_rate(threads), cache / machine.cache_rate(threads))


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


def _task_size(iterations: int, threads: int) -> int:
    """Return the iterations of a task: those that leave the busiest thread the least."""
    most = max(iterations // (threads * SHARE), math.ceil(iterations / MAX_TASKS), 1)
    sizes: Iterable[int] = range(most, most // 2, -1)
    return min(sizes, key=lambda size: math.ceil(math.ceil(iterations / size) / threads) * size)
