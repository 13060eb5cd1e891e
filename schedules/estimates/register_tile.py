"""The register tile of convolutions: its largest size, and the cycles of a step.

A step loads ``vectors`` vectors and ``broadcasts`` scalars, and adds the products of all pairs to
``vectors * broadcasts`` accumulators, which stay in registers. The direct and the Winograd kernel
load vectors of weights and broadcast pixels; the NCHW kernel does the opposite.

Where a multiply-add takes one lane of a vector as a factor (NEON), scalars are loaded as vectors
for four steps each, which stay in registers for that long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.steps import STEP_KINDS
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp

# Registers for vectors of the next step, some of which LLVM loads ahead; sums would spill.
SPARE_REGISTERS = 2
# The loads per cycle of a core with two load ports if a broadcast is an instruction of its own.
LOADS_PER_CYCLE = 1.9
# The cycles of each load that hides behind multiply-adds but competes for issue slots.
LOAD_INTERFERENCE = 0.05
# The bytes per cycle that arrive from L1, L2 and beyond, while other data arrive too.
L1_RATE, L2_RATE, FAR_RATE = 64, 24, 8
# The cycles of beginning a tile, and of one step of the epilogue on a vector of sums.
TILE_CYCLES, EPILOGUE_CYCLES = 20, 2


def steps_cycles(steps: Sequence[EpilogueOp], each: float = EPILOGUE_CYCLES) -> float:
    """Return the cycles of an epilogue, or a prologue, per vector: ``each`` for a simple step."""
    return math.fsum(each + STEP_KINDS[step.kind].cycles for step in steps)


def broadcast_limit(vectors: int, unit: DotUnit) -> int:
    """Return the most broadcasts whose sums, vectors and one broadcast, or vector of lanes, fit."""
    if unit.by_lane:
        return (unit.registers - SPARE_REGISTERS - vectors) // (vectors + 1)
    return (unit.registers - 1 - vectors * unit.operand_vectors) // vectors


def unrolled_limit(vectors: int, unit: DotUnit) -> int:
    """Return the most broadcasts of a register tile that TE unrolls and LLVM keeps in registers.

    With one vector, each broadcast is used once. Where it is not part of the multiply-add, LLVM
    gives its register to the sum, which then needs two, and spills sums of a larger tile.
    """
    limit = broadcast_limit(vectors, unit)
    if vectors == 1 and not unit.broadcasts:
        limit = min(limit, (unit.registers - 2) // 2)
    return limit


def step_cycles(
    vectors: int,
    broadcasts: int,
    unit: DotUnit,
    target: CpuTarget,
    size: int,
    broadcast_loads: float | None = None,
) -> float:
    """Return the cycles of one step: the longest of its parts, plus interference from loads.

    `size` counts the bytes from which the vectors are loaded repeatedly; they decide which cache
    holds them. `broadcast_loads` is the number of loads of broadcast values: one each, or one
    vector of lanes for several steps.
    """
    if broadcast_loads is None:
        broadcast_loads = broadcasts / (unit.lanes if unit.by_lane else 1)
    loads = vectors + broadcast_loads
    load_rate = unit.per_cycle if unit.broadcasts else LOADS_PER_CYCLE
    busy = max(
        vectors * broadcasts / unit.per_cycle,
        loads / load_rate,
        unit.latency,
        vectors * unit.vector_bytes / _bytes_per_cycle(size, target),
    )
    return busy + LOAD_INTERFERENCE * loads


def _bytes_per_cycle(size: int, target: CpuTarget) -> int:
    if size < target.l1d // 2:
        return L1_RATE
    return L2_RATE if size < target.l2 else FAR_RATE
