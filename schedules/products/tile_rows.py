"""Rows of one factor by a panel of the other in AMX's tile registers.

Factors are bfloat16, or float32 values in two parts of bfloat16. A row is divided into lines, the
depth of a tile; zeros follow a factor's end, since NaNs there would not vanish in products.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.tile_products import (
    L1_LOAD,
    L2_LOAD,
    begun_cycles,
    products_cycles,
)
from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_ROWS
from neocpu.schedules.products.panel import PAIR, VECTORS, Matrix, allocate_pairs, pack
from neocpu.schedules.products.row_tile import STORE_CYCLES, RowTile, choose_tile
from neocpu.schedules.tir import tiles
from neocpu.schedules.tir.bfloat16 import BITS, dot_products, parts_of, roundings
from neocpu.schedules.tir.builder import for_vectors, known, span, splat
from neocpu.schedules.tir.llvm_text import opaque_number
from neocpu.schedules.tir.tiles import LINE, PARTS, PRODUCTS
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, Numerics
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import least_of, typical_of, varies

# The cycles of rounding a vector, and of splitting one.
_ROUND_CYCLES: Final = {1: 3, PARTS: 6}

Parts: TypeAlias = tuple[Any, ...]
"""The buffers of the parts of a factor: rounded values and, if there are two, the remainders."""


@dataclass(frozen=True, slots=True)
class TileRows(RowTile):
    """A `RowTile` in tile registers, whose values have so many ``parts``."""

    most_columns: ClassVar[int] = 256
    parts: int = 1

    @property
    def down(self) -> int:
        """The number of tiles that the rows take."""
        return ceil_div(self.height, TILE_ROWS)

    def allocated_rows(self, row_bytes: int) -> int:
        return max(self.height, ceil_div(tiles.LEAST_LINES * ROW_BYTES, least_of(row_bytes)))

    def cycles(self, steps: int, columns: int, panel_bytes: int, target: CpuTarget) -> float:
        lines = ceil_div(steps, LINE)
        weights = L1_LOAD if panel_bytes < target.l1d // 2 else L2_LOAD

        def panel(across: int) -> float:
            factors = (self.down, L1_LOAD), (across, weights)
            each = products_cycles(*factors, self.unit, PRODUCTS[self.parts], self.parts)
            stored = across * self.height * STORE_CYCLES
            return lines * each + begun_cycles(self.down, across) + stored

        full, rest = divmod(columns, VECTORS * self.lanes)
        found = full * panel(VECTORS) + (panel(ceil_div(rest, self.lanes)) if rest else 0.0)
        vectors = self.height * ceil_div(steps, self.lanes)
        return found + vectors * _ROUND_CYCLES[self.parts]

    def allocate_rows(self, depth: int) -> Parts:
        """Allocate rows of the left factor: ``(height, depth)`` up to whole lines."""
        width = ceil_div(depth, LINE) * LINE
        shape = (self.allocated_rows(2 * width), width)
        return tuple(T.alloc_buffer(shape, BITS, layout=None) for _ in range(self.parts))

    def pack(self, source: Matrix, rows: int, columns: int, scale: float) -> Parts:
        """Pack a scaled matrix, the right factor, with zeros up to whole lines of rows."""
        padded = ceil_div(rows, LINE) * LINE
        panels = tuple(allocate_pairs(padded, columns, self.lanes) for _ in range(self.parts))
        full = known(rows) // PAIR
        missing = (known(rows) + (LINE - 1)) // LINE * (LINE // PAIR) - full
        for each in panels:
            with T.serial(int(each.shape[0])) as panel, T.serial(missing) as pair:
                zero = splat(tirx.const(0, "int32"), VECTORS * self.lanes)
                at = [panel, full + pair, span(0, VECTORS * self.lanes)]
                T.buffer_store(each, zero, at)
        pack(panels, source, rows, columns, self.lanes, scale)
        return panels

    def put(self, rows: Parts, depth: Any, read: Callable[[Any, Any, int], Any]) -> None:
        """Round or split vectors ``read(row, column, width)`` of the left factor to its rows. An
        expression of ``depth`` gives whole lines.
        """

        def copy(column: Any, width: int) -> None:
            value = T.Bind(read(row, column, width))
            for each, bits in zip(rows, parts_of(value, width, self.parts), strict=True):
                T.buffer_store(each, bits, [row, span(column, width)])

        with T.serial(self.height) as row:
            if not isinstance(depth, int):
                with T.serial(depth // self.lanes) as i:
                    copy(i * self.lanes, self.lanes)
                return
            for_vectors(depth, self.lanes, copy)
            if varies(depth):
                length = known(depth)
                with T.serial((length + (LINE - 1)) // LINE * LINE - length) as i:
                    for each in rows:
                        T.buffer_store(each, tirx.const(0, BITS), [row, length + i])
            elif missing := -depth % LINE:
                for each in rows:
                    zero = splat(tirx.const(0, BITS), missing)
                    T.buffer_store(each, zero, [row, span(depth, missing)])

    def multiply_into(
        self,
        place: Callable[[int, int], Any],
        stride: int,
        steps: Any,
        vectors: int,
        rows: Parts,
        panel: Panel,
    ) -> None:
        """Emit the products of all rows and the vectors of a panel. `place` returns the element at
        which the sums of a row and a vector are stored; rows are ``stride`` bytes apart.
        """
        tiles.clear(self.down * vectors)
        name, width = self.unit.instruction.name, int(rows[0].shape[1])
        grid = tiles.Grid(self.down, vectors, self.down * VECTORS)
        with T.serial(opaque_number(ceil_div(steps, LINE))) as line:
            tiles.keep_awake()

            def left(i: int, part: int = 0) -> tiles.Rows:
                return rows[part][i * self._tile_rows, line * LINE], 2 * width

            def right(j: int, part: int = 0) -> tiles.Rows:
                pair = panel.first + line * (LINE // PAIR)
                first = panel.parts[part][panel.number, pair, j * self.lanes]
                return first, 4 * VECTORS * self.lanes

            tiles.multiply(name, grid, left, right, self.parts)
        for i, j in product(range(self.down), range(vectors)):
            tiles.store(i * vectors + j, place(i * self._tile_rows, j), stride)

    def allocate_sums(self) -> Any:
        """Allocate the sums of a panel: ``(height, vector, lane)``."""
        rows = self.allocated_rows(4 * VECTORS * self.lanes)
        return T.alloc_buffer((rows, VECTORS, self.lanes), "float32", layout=None)

    def multiply_sums(self, sums: Any, steps: Any, vectors: int, rows: Parts, panel: Panel) -> None:
        """Emit the products of all rows and the vectors of a panel; see `allocate_sums`."""
        stride = 4 * VECTORS * self.lanes
        self.multiply_into(lambda r, v: sums[r, v, 0], stride, steps, vectors, rows, panel)

    @property
    def _tile_rows(self) -> int:
        return ceil_div(self.height, self.down)

    def configured(self) -> AbstractContextManager[None]:
        """Return the context of products, which have `VECTORS` tiles of columns at most."""
        return tiles.configured(self.down, VECTORS, self._tile_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A panel of the right factor, read from a pair of rows on."""

    parts: Parts
    number: Any
    first: Any = 0


def choose_rows(
    rows: int, panel_bytes: int, target: CpuTarget, numerics: Numerics, splits: bool
) -> RowTile:
    """Return the tile of a product of ``rows`` rows: in tile registers for bfloat16, and for values
    that are split, if the CPU has any.
    """
    unit = target.bfloat16_tiles
    if unit is None or not (splits or numerics == BFLOAT16_PRODUCTS):
        return choose_tile(rows, panel_bytes, target, numerics)
    most, typical = VECTORS * TILE_ROWS, typical_of(rows)
    height = most if typical >= most else min(typical, TILE_ROWS)
    return TileRows(rows, height, unit, PARTS if splits else 1)


def product_instructions(tile: RowTile, *extents: int) -> ExitStack:
    """Return the frame, entered already, for products of matrices with such ``extents``."""
    frames = ExitStack()
    lanes = tile.lanes
    if tile.unit.group > 1:
        in_tiles = isinstance(tile, TileRows)
        squares = (1 << power for power in range(lanes.bit_length()))
        tails = {extent % lanes for extent in extents if not varies(extent)} - {0}
        dots = tiles.tile_definitions() if in_tiles else dot_products(tile.unit.intrinsic, lanes)
        frames.enter_context(dots)
        frames.enter_context(roundings({lanes, *tails, *squares}))
    return frames
