"""The time that bytes take to pass through a kernel, for analytic estimates."""

from __future__ import annotations

import math
from dataclasses import replace

from neocpu.foundation.machine.machines import MACHINES
from neocpu.schedules.vocabulary.target import CpuTarget

# The bytes of a cache line, and the lines of a set: L2 caches have 8 ways or more.
LINE, L2_WAYS = 64, 8
# The most weights, in L2 caches, of a layer that prefetches the next layer's. With larger ones
# prefetching gains nothing: 3x3 convolutions of 512 channels and 7x7 pixels lost a quarter.
NEXT_L2S = 4
# The share of the others that the longest of computing and fetching from L3 and memory exposes.
EXPOSED = 0.15


# The threads to which CPUs' speeds apply: those of the machines they were measured on.
RATED_THREADS = 2


def with_cores(target: CpuTarget, threads: int) -> CpuTarget:
    """Return the CPU with the speeds of ``threads`` cores: more cores read faster, but synchronise
    more slowly. The CPU is unchanged if no machine of its kind is known.
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
    """Return the bytes of weights, `size` in all, that come from memory, summed over all last-level
    caches. Consecutive tasks read one of `parts` after the other, `times` over.
    """
    caches = target.rates.caches
    return size * min(caches, max(times, caches / parts))


def fork_seconds(threads: int, target: CpuTarget) -> float:
    """Return the time to enter and leave a parallel loop, in seconds: 0 on one thread."""
    return target.rates.fork if threads > 1 else 0.0


def fetches_next(weights: int, target: CpuTarget) -> bool:
    """Return whether a layer prefetches the next layer's weights, which follow its own.

    It prefetches ``weights`` bytes, as fast as it reads its own. The next layer, above all a
    dense layer of one row, then finds them in L2 or L3. This was not measured on NEON.
    """
    return target.isa != "neon" and weights <= NEXT_L2S * target.l2


def with_memory(computing: float, fetched: float, cold: float, target: CpuTarget) -> float:
    """Return the time of a kernel that fetches while it computes, in seconds.

    `computing` is the busiest thread's computing time in seconds, if its data were in L2. `fetched`
    counts the bytes that this thread reads from beyond its L2. `cold` those that all threads read
    from memory: weights, which the rest of the network has evicted since the last call.
    """
    _, beyond, memory = target.bandwidths
    return overlapped(computing, fetched / beyond, cold / memory)


def overlapped(*parts: float) -> float:
    """Return the total time of overlapping parts: the longest hides most of the others."""
    return max(parts) + EXPOSED * (math.fsum(parts) - max(parts))


def conflicts_in_l2(target: CpuTarget, *axes: tuple[int, int]) -> bool:
    """Return whether pieces of an array share so few sets of L2 that they evict each other.

    Addresses a way's size apart share a set, and strides with a large common factor with that size
    conflict too, like the channels and rows of an image of 128x128. `axes` has the count and the
    stride in bytes along each axis of the access.
    """
    way = target.l2 // L2_WAYS
    pieces = math.prod(count for count, _ in axes)
    sets = math.prod(min(n, way // max(LINE, math.gcd(way, stride))) for n, stride in axes)
    return pieces >= L2_WAYS * sets


def stream_seconds(size: int, target: CpuTarget, threads: int, *, cold: bool = False) -> float:
    """Return the time that a memory-bound kernel takes for ``size`` bytes, in seconds.

    `cold` says whether the bytes come from memory however few they are, like a layer's weights at
    batch 1. Activations that fit the last-level cache are still there from their producer.
    """
    cached = not cold and size <= (target.l2 + target.l3) * threads
    own, _, memory = target.bandwidths
    bandwidth = own * threads
    return size / (bandwidth if cached else min(bandwidth, memory))
