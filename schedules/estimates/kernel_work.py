"""How long a kernel takes that has no estimate of its own, by what its loops do.

`work_count` reads a scheduled function and says what each of its loop nests computes and touches;
this is what of that a CPU takes its time for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from neocpu.foundation.network_rates import NETWORK_RATES
from neocpu.schedules.estimates.memory_traffic import fork_seconds, overlapped, stream_seconds
from neocpu.schedules.vocabulary.target import CpuTarget

VECTOR, SCALAR, DIVIDE, GATHER, LIBRARY, CHAIN, INDEX, CONVERT = range(8)
CLASSES: Final = (
    *("vector", "scalar", "divide", "gather", "library", "chain", "index", "convert"),
)
"""What cycles are spent on: whole vectors and single numbers added, multiplied, loaded and stored;
quotients and roots; elements that do not lie side by side; calls of the C library; sums that wait
for the last one; quotients and remainders of indices; and numbers rounded, or seen as others, as
exponentials are made of."""

L2_RATE: Final = 90.0
"""Bytes that a core gets from its L2 in a cycle, beside what it computes."""

DEFAULT: Final = "znver5"
"""Whose cycles other CPUs are taken to need that were not measured, at their own rates."""


@dataclass(frozen=True, slots=True)
class LoopWork:
    """What a loop nest of a kernel does, all iterations together.

    Attributes
    ----------
    tasks : float
        Iterations of its parallel loop; 1 of what one thread does.
    forks : float
        How many times it forks: 0 without a parallel loop.
    cycles : tuple of float
        Of each of `CLASSES`, were all data in L1.
    size : float
        Bytes of tensors that it reads and writes, each once.
    from_l2 : float
        Bytes that it fetches into L1.
    again : float
        Bytes that it fetches into L2 more than once, where it comes back to what this has lost.
    images : int
        Images that its tasks go through one after another; 1 if they do not.
    largest : float
        How many times the mean of all tasks the largest one is.
    """

    tasks: float
    forks: float
    cycles: tuple[float, ...]
    size: float
    from_l2: float
    again: float
    images: int = 1
    largest: float = 1.0

    def to_json(self) -> list[Any]:
        """Return it as numbers."""
        numbers = (self.size, self.from_l2, self.again, *self.cycles)
        rounded = (round(number, 1) for number in numbers)
        return [self.tasks, self.forks, self.images, self.largest, *rounded]

    @classmethod
    def of_json(cls, numbers: Sequence[float]) -> LoopWork:
        """Return what `to_json` made numbers of."""
        tasks, forks, images, largest, size, from_l2, again, *cycles = map(float, numbers)
        return cls(tasks, forks, tuple(cycles), size, from_l2, again, int(images), largest)


KernelWork = tuple[LoopWork, ...]
"""The loop nests of a kernel, one after another."""


def work_seconds(work: Sequence[LoopWork], target: CpuTarget, threads: int) -> float:
    """Return analytic seconds of a kernel, at the rates of ``target``."""
    return math.fsum(nest_seconds(nest, target, threads) for nest in work)


def nest_seconds(nest: LoopWork, target: CpuTarget, threads: int) -> float:
    """Return analytic seconds of a loop nest.

    Of computing, and of the ways from each cache, the longest hides most of the others.
    """
    busiest = share(nest.tasks, threads)
    known = NETWORK_RATES.get(target.mcpu, NETWORK_RATES[DEFAULT])
    cycles = math.fsum(map(operator.mul, nest.cycles, map(known.cycles.__getitem__, CLASSES)))
    # Each thread moves its part, with its own bandwidth, and with the others' from memory.
    moving = stream_seconds(math.ceil(nest.size), target, threads) * max(1.0, busiest * threads)
    moving += nest.again * busiest / target.rates.beyond
    near = nest.from_l2 * busiest / (L2_RATE * target.frequency)
    together = overlapped(cycles * busiest / target.frequency, moving, near)
    return together + nest.forks * fork_seconds(threads, target)


def share(tasks: float, threads: int) -> float:
    """Return what part of equal tasks the busiest thread has."""
    return math.ceil(tasks / threads) / tasks if tasks > 1 else 1.0
