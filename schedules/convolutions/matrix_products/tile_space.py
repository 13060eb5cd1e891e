"""The register tiles that fit a matrix unit's registers, and estimates for them.

Those of AMX follow a Granite Rapids' speeds in C programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling, fits
from neocpu.schedules.estimates.register_tile import steps_cycles
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

MOST_BLOCKS: Final = 8
"""The most rows and columns of a register tile, in blocks of the unit."""
ENOUGH_BLOCKS: Final = 4
"""The number of blocks of sums in a register tile that makes smaller tiles not worth trying."""
MAX_OVERHANG: Final = 0.25
"""The largest share of padded output channels that a scheme may compute."""


def pixels_of_row(workload: Conv2dWorkload, *, any_stride: bool = False) -> int:
    """Return the pixels of a row of the output, or of an image that forms one row, as 1x1
    convolutions do at stride 1, with ``any_stride`` at any.
    """
    w = workload
    steps = any_stride or w.stride == (1, 1)
    is_flat = w.kernel == (1, 1) and steps and not any(w.padding) and not reads_outside(w)
    return w.out_height * w.out_width if is_flat else w.out_width


def register_tiles(
    columns: int, out_channels: int, unit: DotUnit, parts: int = 1
) -> list[tuple[int, int]]:
    """Return pixels and channels of register tiles; small ones only if there are no larger ones.

    A tile of fewer blocks uses each loaded operand for few products. It is slower as soon as
    operands do not come from L1. Rows of the output have ``columns`` pixels, and each value is
    split into ``parts``; all operands of a step then stay in registers at once, because each is
    used more than once.
    """
    made = unit.instruction
    found = [
        (reg_n, across * made.columns)
        for across, down in product(range(1, MOST_BLOCKS + 1), range(1, MOST_BLOCKS + 1))
        if _is_whole(across * made.columns, out_channels, unit)
        if fits(down, across, unit, parts)
        for reg_n in _pixels(down, columns, unit)
    ]
    blocks = [ceil_div(reg_n, made.rows) * reg_oc // made.columns for reg_n, reg_oc in found]
    least = min(ENOUGH_BLOCKS, max(blocks, default=0))
    return [each for each, count in zip(found, blocks, strict=True) if count >= least]


def _is_whole(reg_oc: int, out_channels: int, unit: DotUnit) -> bool:
    """Return whether the channels are whole vectors with little padding."""
    needed = ceil_div(out_channels, unit.lanes) * unit.lanes
    overhangs = ceil_div(needed, reg_oc) * reg_oc > (1 + MAX_OVERHANG) * needed
    return reg_oc % unit.lanes == 0 and (reg_oc <= unit.lanes or not overhangs)


def _pixels(down: int, columns: int, unit: DotUnit) -> Iterator[int]:
    """Yield the numbers of pixels of ``down`` blocks: whole blocks, or part of a short row."""
    rows = unit.instruction.rows
    whole = down * rows
    if whole <= columns:
        yield whole
    if not unit.instruction.in_tiles:
        return
    # Short rows have all pixels in as few blocks; in others the blocks repeat the fewest pixels.
    tiles = ceil_div(columns, whole)
    each = ceil_div(ceil_div(columns, tiles), down)
    if each < rows and each * down <= columns and ceil_div(each * down, rows) == down:
        yield each * down


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
    """Return a task's cycles, of so many ``products`` and ``loads`` of tiles for one of values."""
    begun = BLOCK_CYCLES + STORE_TILE * t.block_rows * t.block_columns
    return register_tiles_cycles(t, t.steps * _step(t, target, products, loads), begun)


def register_tiles_cycles(t: MatrixTiling, tap: float, begun: float) -> float:
    """Return the cycles of a task's register tiles: ``tap`` for a block of input channels at a tap,
    and ``begun`` for beginning and ending each without its epilogue.
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
