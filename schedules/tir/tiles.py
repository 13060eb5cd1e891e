"""AMX's tile registers in kernels: their configuration, and products of matrices of tiles.

Tiles of sums are numbered row by row from 0 on. Those of the left factor follow, one for each row
of sums. The remaining ones are for the right factor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_ROWS
from neocpu.schedules.tir.builder import llvm_definition
from neocpu.schedules.vocabulary.dot_unit import TILES

LINE: Final = ROW_BYTES // 2
"""The values of bfloat16 in a row of a tile."""
PARTS: Final = 2
"""The parts of a float32 value as bfloat16."""
UPPER, LOWER = range(PARTS)
"""The value rounded, and the remainder rounded."""
PRODUCTS: Final = {1: 1, PARTS: 3}
"""The products of tiles for one of values, by the parts of a value; see `multiply`."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The tiles of a product: rows and columns of sums, and the tiles that are kept for sums."""

    down: int
    across: int
    kept: int


Rows: TypeAlias = tuple[Any, int]
"""The first element of a tile in memory, and the distance of its rows in bytes."""

# The unit for 512-bit floats powers down after some 2,000 cycles without use, and a store of a tile
# then waits 1,000 cycles for it. Every loop therefore uses it; integers do not wake it.
_AWAKE: Final = "neocpu_awake"
# While a neighbour on the host slows tiles down, a step of four loads and four products takes 4.2
# times as long as alone, and 2.5 times with eight no-ops behind each of these, which cost nothing
# alone (measured on an Emerald Rapids of which a virtual machine had two logical CPUs).
_GAP: Final = "neocpu_gap"
_NO_OPS: Final = 8
_DEFINITION: Final = f"""
define void @{_AWAKE}() alwaysinline nounwind {{
  call void asm sideeffect "vaddps %zmm31, %zmm31, %zmm31", "~{{zmm31}}"()
  ret void
}}

define void @{_GAP}() alwaysinline nounwind {{
  call void asm sideeffect "{"nop; " * _NO_OPS}", ""()
  ret void
}}
"""
LEAST_LINES: Final = 16
"""The least cache lines of a buffer: TVM keeps smaller ones on the stack, where none is aligned."""
# The bytes of a configuration; eight of its entries are those of tiles.
_ENTRIES: Final = 16


def tile_definitions() -> Any:
    """Return the frame that functions of this module need around them."""
    return llvm_definition(_DEFINITION)


@contextmanager
def configured(
    down: int, across: int, rows: int, row_bytes: int = ROW_BYTES, right_rows: int = TILE_ROWS
) -> Iterator[None]:
    """Configure the tiles and release them: a thread that has any is switched out more slowly, and
    short rows are only fast until then. All memory should be allocated before, because a task
    whose allocation fails releases none.

    `rows`: of the sums and the left factor. `row_bytes`: of the left factor. `right_rows`: of the
    right factor.
    """
    sums = down * across
    right = TILES - sums - down
    widths = [ROW_BYTES] * sums + [row_bytes] * down + [ROW_BYTES] * right
    heights = [rows] * (sums + down) + [right_rows] * right
    none = [0] * (_ENTRIES - TILES)
    palette = 1
    packed = struct.pack("<BB14x16H16B", palette, 0, *widths, *none, *heights, *none)
    configuration = T.alloc_buffer((8,), "int64", scope="local", layout=None)
    for place, word in enumerate(np.frombuffer(packed, np.int64)):
        T.buffer_store(configuration, tirx.const(int(word), "int64"), [place])
    _emit("ldtilecfg", tirx.address_of(configuration[0]))
    yield
    _emit("tilerelease")


def clear(tiles: int) -> None:
    """Emit zeros in the first tiles."""
    for number in range(tiles):
        _emit("tilezero", _number(number))


def keep_awake() -> None:
    """Emit the instruction that each turn of a loop of products needs: see `_AWAKE`."""
    T.evaluate(tirx.call_extern("void", _AWAKE))


def store(tile: int, first: Any, stride: int) -> None:
    """Emit the store of a tile of sums, with rows ``stride`` bytes apart."""
    _emit("tilestored64", _number(tile), tirx.address_of(first), _bytes(stride))


def multiply(
    instruction: str,
    grid: Grid,
    left: Callable[..., Rows],
    right: Callable[..., Rows],
    parts: int = 1,
) -> None:
    """Emit the loads of ``left(i)`` and ``right(j)``, and their products, added to the sums.

    Values in several ``parts`` are those of ``left(i, part)`` and ``right(j, part)``.
    """
    if parts > 1:
        _multiply_parts(instruction, grid, left, right)
        return
    first = grid.kept + grid.down
    for j in range(grid.across):
        taps = first + j % (TILES - first)
        _load(taps, right(j))
        for i in range(grid.down):
            if j == 0:
                _load(grid.kept + i, left(i))
            _product(instruction, i * grid.across + j, grid.kept + i, taps)


def _multiply_parts(
    instruction: str,
    grid: Grid,
    left: Callable[[int, int], Rows],
    right: Callable[[int, int], Rows],
) -> None:
    """Emit the products of two factors in parts: ``left(i, part)`` and ``right(j, part)``.

    Of the four products, the smallest is left out::

        sums += left's upper * right's lower
        sums += left's upper * right's upper
        sums += left's lower * right's upper

    Each tile is loaded once for all of them. This order was the fastest of those measured on a
    Granite Rapids: 16.0 cycles per product of tiles, with the left factor in L1 and the right one
    in L2.
    """
    down, across = range(grid.down), range(grid.across)

    def load_left(i: int, part: int) -> None:
        _load(grid.kept + i, left(i, part))

    def load_right(j: int, part: int) -> None:
        _load(grid.kept + grid.down + j, right(j, part))

    def add(i: int, j: int) -> None:
        first = grid.kept + i
        _product(instruction, i * grid.across + j, first, grid.kept + grid.down + j)

    for j in across:
        load_right(j, LOWER)
        for i in down:
            if j == 0:
                load_left(i, UPPER)
            add(i, j)
    for j in across:
        load_right(j, UPPER)
        for i in down:
            add(i, j)
    for i in down:
        load_left(i, LOWER)
        for j in across:
            add(i, j)


def _load(tile: int, rows: Rows) -> None:
    first, stride = rows
    _emit("tileloadd64", _number(tile), tirx.address_of(first), _bytes(stride))
    _gap()


def _product(instruction: str, sums: int, left: int, right: int) -> None:
    _emit(instruction, *map(_number, (sums, left, right)))
    _gap()


def _emit(name: str, *operands: Any) -> None:
    T.evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))


def _gap() -> None:
    T.evaluate(tirx.call_extern("void", _GAP))


def _number(tile: int) -> Any:
    return tirx.const(tile, "int8")


def _bytes(count: int) -> Any:
    return tirx.const(count, "int64")
