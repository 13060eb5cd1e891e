"""What analytic estimates assume of memory: how long bytes take to pass through a kernel."""

from __future__ import annotations

from neocpu.schedules.target import CpuTarget

# Entering and leaving a parallel loop, the threads' first cache misses included.
FORK_SECONDS = 4e-6
# Bytes per second of one core of a current server CPU through the caches that the operator before
# left its data in, from the last-level cache, and from memory, which all cores share. Measured in
# networks: DRAM gives 33e9 on a Zen 4 and 20e9 on a Zen 3.
CORE_BANDWIDTH, L3_BANDWIDTH, DRAM_BANDWIDTH = 40e9, 32e9, 28e9
# Of computing, fetching from L3 and from memory, the longest hides all but this share of the rest.
EXPOSED = 0.15


def with_memory(computing: float, fetched: float, cold: float) -> float:
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
    parts = (computing, fetched / L3_BANDWIDTH, cold / DRAM_BANDWIDTH)
    return max(parts) + EXPOSED * (sum(parts) - max(parts))


def stream_seconds(size: int, target: CpuTarget, threads: int, *, cold: bool = False) -> float:
    """Seconds that a memory-bound kernel takes to read and write ``size`` bytes.

    Parameters
    ----------
    cold : bool
        Whether the bytes come from memory however few they are, as a layer's weights do at
        batch 1; activations that fit the last-level cache were left there by their producer.
    """
    cached = not cold and size <= (target.l2 + target.l3) * threads
    bandwidth = CORE_BANDWIDTH * threads
    return size / (bandwidth if cached else min(bandwidth, DRAM_BANDWIDTH))
