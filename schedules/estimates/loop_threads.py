"""The number of threads that a loop is worth: entering and leaving it costs more with each.

The module also computes what a call contributes to a launch that it shares with others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from neocpu.foundation.machine.machines import MACHINES, Machine
from neocpu.schedules.estimates.kernel_work import KernelWork, LoopWork, nest_seconds, work_seconds
from neocpu.schedules.estimates.memory_traffic import stream_seconds, with_cores
from neocpu.schedules.estimates.parallel_run import Piece, task_count
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.vocabulary.target import CpuTarget

OF_EXTENT: Final = 1 << 31
"""`NC_OF_EXTENT` of core/src/kernel_table.h."""

# The threads from which on fewer may be better, and an axis may have too few tasks.
MANY_THREADS: Final = 8
# The share of the least time that more threads must save.
WORTH: Final = 0.05


def parallel_loops(function: Any) -> tuple[int, ...]:
    """Return the iterations of a function's parallel loops, in turn.

    If they are an extent of a kernel for any size, it is `OF_EXTENT` plus the extent's position;
    if they are another expression, they are unknown, 0. Of loops in a loop all is said once.
    """
    found: list[int] = []
    shape = function.params[0].ty.shape if function.params else ()
    positions = {
        extent: OF_EXTENT + place for place, extent in enumerate(shape) if isinstance(extent, Var)
    }

    def note(loop: tirx.For) -> None:
        if int(loop.kind) == tirx.stmt.ForKind.PARALLEL:
            constant = isinstance(loop.extent, tirx.IntImm)
            found.append(int(loop.extent) if constant else positions.get(loop.extent, 0))

    tvm_ffi.structural_walk(function.body, (tirx.For, note), order="pre")
    return tuple(found)


def kernel_tasks(function: Any, target: CpuTarget, threads: int) -> tuple[int, ...]:
    """Return the tasks of a scheduled function's parallel loops, as an artifact has them."""
    launches = parallel_loops(function)
    if threads < MANY_THREADS or target.mcpu not in MACHINES:
        return launches
    try:
        work = count_work(function, target)
    except Exception:  # a kernel that cannot be predicted has all its tasks
        return launches
    return worthwhile_tasks(work, launches, target, threads)


def worthwhile_tasks(
    work: KernelWork, launches: Sequence[int], target: CpuTarget, threads: int
) -> tuple[int, ...]:
    """Return the limit of tasks for each parallel loop of a kernel.

    It is the number of iterations or, if fewer threads are about as fast, their number. `launches`
    has each loop's iterations, in order; 0 if they are unknown.
    """
    machine = MACHINES.get(target.mcpu)
    nests = [nest for nest in work if nest.forks]
    known = [int(nest.tasks) for nest in nests] == list(launches)
    if machine is None or threads < MANY_THREADS or not known:
        return tuple(launches)
    return tuple(
        tasks if (few := _threads(nest, target, machine, threads)) == threads else min(tasks, few)
        for nest, tasks in zip(nests, launches, strict=True)
    )


def piece_of(
    work: KernelWork, tasks: Sequence[int], target: CpuTarget, threads: int
) -> Piece | None:
    """Return a kernel call's share of a shared launch, from its loop's `worthwhile_tasks`.

    It is None if the kernel has several loops.
    """
    loops = [nest for nest in work if nest.forks]
    if len(tasks) > 1 or len(loops) != len(tasks) or any(nest.forks != 1 for nest in loops):
        return None
    seconds = work_seconds([replace(nest, forks=0.0) for nest in loops], target, 1)
    alone = work_seconds([nest for nest in work if not nest.forks], target, 1)
    if not loops:
        return Piece(1, alone)
    size = math.ceil(math.fsum(nest.size for nest in loops))
    moving = stream_seconds(size, with_cores(target, threads), threads)
    return Piece(task_count(tasks[0], threads), seconds, alone, moving)


def _threads(nest: LoopWork, target: CpuTarget, machine: Machine, threads: int) -> int:
    """Return the fewest threads, a power of two, on which a loop takes about the least time."""
    counts = [*(1 << i for i in range(threads.bit_length()) if 1 << i < threads), threads]

    def seconds(count: int) -> float:
        rates = with_cores(target, count).rates
        own = target.at(replace(rates, fork=machine.fork_seconds(count)))
        return nest_seconds(nest, own, count)

    found = [seconds(count) for count in counts]
    most = (1 + WORTH) * min(found)
    return next(n for n, each in zip(counts, found, strict=True) if each <= most)
