"""Estimates for register tiles; those of AMX follow a Granite Rapids' speeds in C programs."""

from __future__ import annotations

from typing import Final

from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.estimates.memory_traffic import cold_weights, with_memory
from neocpu.schedules.estimates.register_tile import steps_cycles
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

L1_LOAD, L2_LOAD = 8.4, 21.0
"""The cycles of loading a tile."""
STRIDED_LOADS: Final = ((4096, 16.4), (2048, 12.2), (128, 9.3))
"""The same from L1 for rows that are at least so many bytes apart."""
LOAD_INTERFERENCE: Final = 0.7
"""The cycles that a hidden load still costs: 1x1 tiles take 17.3 cycles, and 2x2 tiles 16."""
BLOCK_CYCLES, STORE_TILE = 77.0, 18.0
"""The cycles of beginning a register tile, and of storing one of its tiles."""
STORE_CYCLES: Final = 2.0
"""The cycles of storing a vector of sums after the epilogue."""


def strip_cycles(t: MatrixTiling, target: CpuTarget, *, products: int = 1, loads: int = 1) -> float:
    """Return the cycles of a task's register tiles.

    ``products`` counts products of tiles for each product of values, and ``loads`` those of each
    operand.
    """
    begun = BLOCK_CYCLES + STORE_TILE * t.block_rows * t.block_columns
    return register_tiles_cycles(t, t.steps * _step(t, target, products, loads), begun)


def register_tiles_cycles(t: MatrixTiling, tap: float, begun: float) -> float:
    """Return the cycles of a task's register tiles on any matrix unit.

    ``tap`` has the cycles of a block of input channels at one tap, and ``begun`` those of beginning
    and ending a register tile, without its epilogue.
    """
    tile = t.chunks * t.workload.kernel[0] * t.window_columns * tap + begun
    tile += t.vectors * t.scheme.reg_n * (STORE_CYCLES + steps_cycles(t.workload.epilogue))
    across = 1 if t.is_flat else t.column_tiles
    return t.strip_tiles * across * ceil_div(t.oc_blocks, t.groups) * tile


def _step(t: MatrixTiling, target: CpuTarget, products: int, loads: int) -> float:
    """Return the cycles of one product for each pair of tiles, or of loading its operands."""
    busy = products * t.block_rows * t.block_columns / t.unit.per_cycle
    apart = next((cycles for least, cycles in STRIDED_LOADS if t.row_stride >= least), L1_LOAD)
    data = apart if t.data_bytes < target.l1d // 2 else L2_LOAD
    weights = L1_LOAD if t.data_bytes + t.block_bytes < target.l1d else L2_LOAD
    brought = loads * (t.block_rows * data + t.block_columns * weights)
    return max(busy, brought) + LOAD_INTERFERENCE * loads * (t.block_rows + t.block_columns)


def seconds(t: MatrixTiling, target: CpuTarget, work: float) -> float:
    """Return the time of all tasks of ``work`` cycles each, with weight transfers, in seconds."""
    busy = ceil_div(t.tasks, t.threads) * work / target.frequency
    weights = t.oc_blocks * t.block_bytes
    cold = cold_weights(weights, target, t.groups, t.workload.batch)
    return with_memory(busy, weights / t.groups, cold, target)
