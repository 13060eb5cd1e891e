"""The register tiles that fit a matrix unit's registers, and estimates for them.

Those of AMX follow a Granite Rapids' speeds in C programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from neocpu.schedules.convolutions.matrix_products.joined_rows import JoinedRows
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import (
    JOINED_BLOCK,
    MatrixTiling,
    fits,
)
from neocpu.schedules.estimates.register_tile import steps_cycles
from neocpu.schedules.estimates.tile_products import (
    L1_LOAD,
    L2_LOAD,
    begun_cycles,
    products_cycles,
)
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


def rows_and_pixels(
    workload: Conv2dWorkload, unit: DotUnit, *, any_stride: bool = False
) -> tuple[int, int]:
    """Return the rows of the output and the pixels of each, or one row where an image forms one:
    1x1 convolutions at stride 1, with ``any_stride`` at any, and `JoinedRows`.
    """
    w = workload
    steps = any_stride or w.stride == (1, 1)
    if w.kernel == (1, 1) and steps and not any(w.padding) and not reads_outside(w):
        return 1, w.out_height * w.out_width
    joined = JoinedRows.if_fewer(w) if unit.instruction.in_tiles else None
    if joined is not None and w.image_channels > JOINED_BLOCK:
        return 1, joined.positions(w)
    return w.out_height, w.out_width


def joins_columns(workload: Conv2dWorkload, line: int) -> bool:
    """Return whether a line of a tile can hold a row of windows of a picture."""
    w = workload
    if w.groups > 1 or w.frames or reads_outside(w) or w.dilation[1] != 1:
        return False
    fits_line = 1 < w.kernel[1] <= line // JOINED_BLOCK
    return fits_line and w.image_channels <= JOINED_BLOCK <= w.width


def register_tiles(
    columns: int, rows: int, out_channels: int, unit: DotUnit, parts: int = 1, group: int = 0
) -> list[tuple[int, int, int]]:
    """Return rows, pixels of each, and channels of register tiles; small ones only if there are no
    larger ones.

    A tile of fewer blocks uses each loaded operand for few products. It is slower as soon as
    operands do not come from L1. Rows of the output have ``columns`` pixels, and each value is
    split into ``parts``; all operands of a step then stay in registers at once, because each is
    used more than once. In tiles of several rows, each is one block. Channels divide a ``group``'s,
    if there is one.
    """
    made = unit.instruction
    most = min(rows, MOST_BLOCKS) if made.in_tiles else 1
    found = [
        (reg_oh, reg_n, across * made.columns)
        for across, down in product(range(1, MOST_BLOCKS + 1), range(1, MOST_BLOCKS + 1))
        if _is_whole(across * made.columns, out_channels, unit)
        if fits(down, across, unit, parts)
        if group % (across * made.columns) == 0
        for reg_oh in {1, down}
        if reg_oh <= most
        for reg_n in _pixels(down // reg_oh, columns, unit)
    ]
    blocks = [
        reg_oh * ceil_div(reg_n, made.rows) * reg_oc // made.columns
        for reg_oh, reg_n, reg_oc in found
    ]
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


STRIDED_LOADS: Final = ((4096, 16.4), (2048, 12.2), (128, 9.3))
"""The cycles of loading a tile from L1 whose rows are at least so many bytes apart."""
STORE_CYCLES: Final = 2.0
"""The cycles of storing a vector of sums after the epilogue."""


def strip_cycles(t: MatrixTiling, target: CpuTarget, *, products: int = 1, loads: int = 1) -> float:
    """Return a task's cycles, of so many ``products`` and ``loads`` of tiles for one of values."""
    begun = begun_cycles(t.pixel_blocks, t.block_columns)
    return register_tiles_cycles(t, t.steps * _step(t, target, products, loads), begun)


def register_tiles_cycles(t: MatrixTiling, tap: float, begun: float) -> float:
    """Return the cycles of a task's register tiles: ``tap`` for a block of input channels at a tap,
    and ``begun`` for beginning and ending each without its epilogue.
    """
    tile = t.chunks * t.workload.kernel[0] * t.window_columns * tap + begun
    vectors = t.vectors * t.scheme.reg_oh * t.scheme.reg_n
    tile += vectors * (STORE_CYCLES + steps_cycles(t.workload.epilogue))
    across = 1 if t.is_flat else t.column_tiles
    return t.strip_tiles * across * ceil_div(t.oc_blocks, t.groups) * tile


def _step(t: MatrixTiling, target: CpuTarget, products: int, loads: int) -> float:
    """Return the cycles of one product for each pair of tiles, or of loading its operands."""
    apart = next((cycles for least, cycles in STRIDED_LOADS if t.row_stride >= least), L1_LOAD)
    data = apart if t.data_bytes < target.l1d // 2 else max(apart, L2_LOAD)
    weights = L1_LOAD if t.data_bytes + t.block_bytes < target.l1d else L2_LOAD
    down, across = (t.pixel_blocks, data), (t.block_columns, weights)
    return products_cycles(down, across, t.unit, products, loads)
