"""The canonical workloads whose records correct the costs of a network's memory-bound operators."""

from __future__ import annotations

import math
from collections.abc import Iterator

from neocpu.planning.memory_class import MemoryClass
from neocpu.planning.memory_costs import LOG_ELEMENTS, SIDES, canonical_workload, nearest
from neocpu.planning.network import Network
from neocpu.schedules.vocabulary.layout import DataLayout, channel_blocks
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload


def memory_workloads(network: Network, target: CpuTarget) -> tuple[Workload, ...]:
    """Return the canonical workloads that plans of ``network`` need on ``target``.

    There are a few tens at most, and all networks share them.
    """
    return tuple(
        dict.fromkeys(
            canonical_workload(
                kind, dtype, SIDES[nearest(math.log(elements), LOG_ELEMENTS)], target
            )
            for kind, dtype, elements in _needed(network, target)
        )
    )


def _needed(network: Network, target: CpuTarget) -> Iterator[tuple[MemoryClass, str, int]]:
    """Yield the class, element type and elements of every cost that a layout graph may need."""
    produced = {op.result for op in network.ops}
    for op in network.ops:
        for read in op.reads:
            elements = math.prod(read.shape)
            yield MemoryClass.PACK, read.dtype, elements
            if read.var in produced:
                yield MemoryClass.UNPACK, read.dtype, elements
                yield MemoryClass.WIDEN, read.dtype, elements
                yield MemoryClass.NARROW, read.dtype, elements
        if op.result in network.nchw_reads:
            yield MemoryClass.UNPACK, op.dtype, math.prod(op.shape)
        blocks = (1, *channel_blocks(op.shape[1], target.lanes(op.dtype)))
        for kind in {op.memory_class(DataLayout(block)) for block in blocks} - {None}:
            assert kind is not None
            yield kind, op.dtype, math.prod(op.shape)
