"""What analytic estimates assume of memory: how long bytes take to pass through a kernel."""

from __future__ import annotations

from neocpu.schedules.target import CpuTarget

# Entering and leaving a parallel loop, the threads' first cache misses included.
FORK_SECONDS = 4e-6
# Bytes per second of one core of a current server CPU through the caches that the operator before
# left its data in, and from memory, which all cores share. Measured in networks on a Zen 4.
CORE_BANDWIDTH, DRAM_BANDWIDTH = 40e9, 33e9


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
