"""What analytic estimates assume of memory: how long bytes take to pass through a kernel."""

from __future__ import annotations

import math
from dataclasses import replace

from neocpu.foundation.machines import MACHINES
from neocpu.schedules.vocabulary.target import CpuTarget

# Bytes of a cache line, and lines of a set: L2 caches have 8 ways or more.
LINE, L2_WAYS = 64, 8
# Weights, in L2 caches, of a layer that has time to ask for as many of the next one's. Larger ones
# come no faster than they are used: 3x3 convolutions of 512 channels and 7x7 pixels lost a quarter.
NEXT_L2S = 4
# Of computing, fetching from L3 and from memory, the longest hides all but this share of the rest.
EXPOSED = 0.15


# Threads that the rates of CPUs are for: those of the machines that they were measured on.
RATED_THREADS = 2


def with_cores(target: CpuTarget, threads: int) -> CpuTarget:
    """Return the CPU at the rates of so many cores: more read more from memory, and meet later.

    As it is where no machine of it is known.
    """
    machine = MACHINES.get(target.mcpu)
    if machine is None or threads <= RATED_THREADS:
        return target
    more = machine.memory_rate(threads) / machine.memory_rate(RATED_THREADS)
    later = machine.fork_seconds(threads) - machine.fork_seconds(RATED_THREADS)
    rates, caches = target.rates, machine.caches(threads)
    memory, fork = rates.memory * more, rates.fork + later
    return target.at(replace(rates, memory=memory, fork=fork, caches=caches))


def cold_weights(size: float, target: CpuTarget, parts: int = 1, times: int = 1) -> float:
    """Return the bytes of weights that come from memory: to each last-level cache those it needs.

    Parameters
    ----------
    size : float
        Bytes of all.
    parts : int
        Into which tasks divide them: consecutive tasks read one part after the other.
    times : int
        How often they go through all parts.
    """
    caches = target.rates.caches
    return size * min(caches, max(times, caches / parts))


def fork_seconds(threads: int, target: CpuTarget) -> float:
    """Seconds it takes to enter and leave a parallel loop: none on one thread."""
    return target.rates.fork if threads > 1 else 0.0


def fetches_next(weights: int, target: CpuTarget) -> bool:
    """Whether a layer asks for what lies after its ``weights``, in bytes: the next one's.

    It asks for as many, at the pace at which it uses its own. The next layer then finds in L2 or L3
    what it would wait for, a dense layer of one row above all. On NEON that is not measured.
    """
    return target.isa != "neon" and weights <= NEXT_L2S * target.l2


def with_memory(computing: float, fetched: float, cold: float, target: CpuTarget) -> float:
    """Seconds of a kernel that fetches while it computes.

    Parameters
    ----------
    computing : float
        Seconds of the busiest thread, were its data in L2.
    fetched : float
        Bytes that thread reads from beyond its L2.
    cold : float
        Bytes all threads together read from memory: the weights, which the rest of the network has
        evicted since the last call.
    """
    _, beyond, memory = target.bandwidths
    return overlapped(computing, fetched / beyond, cold / memory)


def overlapped(*parts: float) -> float:
    """Return how long parts take of which the longest hides most of the others."""
    return max(parts) + EXPOSED * (math.fsum(parts) - max(parts))


def conflicts_in_l2(target: CpuTarget, *axes: tuple[int, int]) -> bool:
    """Whether pieces of an array fall into so few sets of L2 that they evict each other.

    Addresses a way's size apart share a set. So do those of a strided access whose strides have a
    large common factor with that size, such as the channels and rows of an image of 128x128.

    Parameters
    ----------
    axes : tuple of (int, int)
        Count and stride in bytes along each axis of the access.
    """
    way = target.l2 // L2_WAYS
    pieces = math.prod(count for count, _ in axes)
    sets = math.prod(min(n, way // max(LINE, math.gcd(way, stride))) for n, stride in axes)
    return pieces >= L2_WAYS * sets


def stream_seconds(size: int, target: CpuTarget, threads: int, *, cold: bool = False) -> float:
    """Seconds that a memory-bound kernel takes to read and write ``size`` bytes.

    Parameters
    ----------
    cold : bool
        Whether the bytes come from memory however few they are, as a layer's weights do at
        batch 1; activations that fit the last-level cache were left there by their producer.
    """
    cached = not cold and size <= (target.l2 + target.l3) * threads
    own, _, memory = target.bandwidths
    bandwidth = own * threads
    return size / (bandwidth if cached else min(bandwidth, memory))
