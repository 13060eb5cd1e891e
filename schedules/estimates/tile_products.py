"""The cycles of products in AMX's tile registers, as C programs took them on a Granite Rapids."""

from __future__ import annotations

from typing import Final

from neocpu.schedules.vocabulary.dot_unit import DotUnit

L1_LOAD, L2_LOAD = 8.4, 21.0
"""The cycles of loading a tile."""
# The cycles that a hidden load still costs: 1x1 tiles take 17.3 cycles, and 2x2 tiles 16.
_LOAD_INTERFERENCE: Final = 0.7
# The cycles of beginning a register tile, and of storing one of its tiles.
_BLOCK_CYCLES, _STORE_TILE = 77.0, 18.0


def products_cycles(
    down: tuple[int, float],
    across: tuple[int, float],
    unit: DotUnit,
    products: int = 1,
    loads: int = 1,
) -> float:
    """Return the cycles of ``products`` of each pair of tiles, or of ``loads`` of each of them.

    `down`, `across`: the tiles of the left and of the right factor, and the cycles of loading one.
    """
    (rows, left), (columns, right) = down, across
    busy = products * rows * columns / unit.per_cycle
    brought = loads * (rows * left + columns * right)
    return max(busy, brought) + _LOAD_INTERFERENCE * loads * (rows + columns)


def begun_cycles(down: int, across: int) -> float:
    """Return the cycles of beginning so many tiles of sums, and of storing them."""
    return _BLOCK_CYCLES + _STORE_TILE * down * across
