"""The time of kernels without an estimate of their own, from the counts of `work_count`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.schedules.estimates.memory_traffic import fork_seconds, overlapped, stream_seconds
from neocpu.schedules.vocabulary.target import CpuTarget

VECTOR, SCALAR, DIVIDE, GATHER, LIBRARY, CHAIN, INDEX, CONVERT = range(8)
CLASSES: Final = ("vector", "scalar", "divide", "gather", "library", "chain", "index", "convert")
"""The classes of cycles: whole vectors and single numbers added, multiplied, loaded and stored;
quotients and roots; elements that do not lie side by side; calls of the C library; sums that wait
for the previous one; quotients and remainders of indices; and numbers rounded or reinterpreted, as
in exponentials."""

L2_RATE: Final = 90.0
"""The bytes per cycle that a core gets from its L2 while it computes."""

DEFAULT: Final = "znver5"
"""The CPU whose cycle counts are assumed, at their own clocks, for CPUs that were not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWork:
    """The work of a loop nest of a kernel, over all its iterations.

    - `tasks`: the iterations of its parallel loop; 1 if one thread does everything.
    - `forks`: 0 without a parallel loop.
    - `cycles`: the cycles of each of `CLASSES`, if all data were in L1.
    - `size`: the bytes of the tensors that it reads and writes, each counted once.
    - `from_l2`, `again`: the bytes that it fetches into L1, and again into L2 after their eviction.
    """

    tasks: float
    forks: float
    cycles: tuple[float, ...]
    size: float
    from_l2: float
    again: float

    def to_json(self) -> list[Any]:
        numbers = (self.size, self.from_l2, self.again, *self.cycles)
        rounded = (round(number, 1) for number in numbers)
        return [self.tasks, self.forks, *rounded]

    @classmethod
    def of_json(cls, numbers: Sequence[float]) -> LoopWork:
        tasks, forks, size, from_l2, again, *cycles = map(float, numbers)
        return cls(
            tasks=tasks, forks=forks, cycles=tuple(cycles), size=size, from_l2=from_l2, again=again
        )


KernelWork = tuple[LoopWork, ...]
"""The loop nests of a kernel, in order."""


def work_seconds(work: Sequence[LoopWork], target: CpuTarget, threads: int) -> float:
    """Return the analytic time of a kernel in seconds, at the speeds of ``target``."""
    return math.fsum(nest_seconds(nest, target, threads) for nest in work)


def nest_seconds(nest: LoopWork, target: CpuTarget, threads: int) -> float:
    """Return a loop nest's seconds: the longest of computation and transfers hides most others."""
    busiest = share(nest.tasks, threads)
    known = NETWORK_RATES.get(target.mcpu, NETWORK_RATES[DEFAULT])
    cycles = math.fsum(map(operator.mul, nest.cycles, map(known.cycles.__getitem__, CLASSES)))
    # Each thread moves its part with its own bandwidth, and shares that of memory.
    moving = stream_seconds(math.ceil(nest.size), target, threads) * max(1.0, busiest * threads)
    moving += nest.again * busiest / target.rates.beyond
    near = nest.from_l2 * busiest / (L2_RATE * target.frequency)
    together = overlapped(cycles * busiest / target.frequency, moving, near)
    return together + nest.forks * fork_seconds(threads, target)


def share(tasks: float, threads: int) -> float:
    """Return the busiest thread's share of equal tasks."""
    return math.ceil(tasks / threads) / tasks if tasks > 1 else 1.0
