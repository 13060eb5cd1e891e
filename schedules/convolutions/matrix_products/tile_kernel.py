"""Register tiles in AMX's tile registers.

With two rows and two columns of blocks, the loop nest is::

    sums[0..3] = 0
    for ic_chunk, kh, kw, line of ic_bn:
        load weights 0, pixels 0;  sums[0] += pixels 0 * weights 0
        load pixels 1;             sums[2] += pixels 1 * weights 0
        load weights 1;            sums[1] += pixels 0 * weights 1;  sums[3] += pixels 1 * weights 1
    output[…] = epilogue(sums)        # by way of memory, where a pixel takes lines of the caches

Each task configures and releases the tiles: a thread that has any is switched out more slowly, and
short rows are only fast until then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.dot_products.strip_nest import Source, Start, StripNest, Tile
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_ROWS
from neocpu.schedules.tir.builder import llvm_definition
from neocpu.schedules.vocabulary.dot_unit import TILES
from neocpu.schedules.vocabulary.layout import ceil_div

# The unit for 512-bit floats powers down after some 2,000 cycles without use, and a store of a tile
# then waits 1,000 cycles for it. Every loop therefore uses it; integers do not wake it.
_AWAKE: Final = "neocpu_awake"
_DEFINITION: Final = f"""
define void @{_AWAKE}() alwaysinline nounwind {{
  call void asm sideeffect "vaddps %zmm31, %zmm31, %zmm31", "~{{zmm31}}"()
  ret void
}}
"""
# Smaller buffers than a kibibyte go to the stack in TVM, which is not aligned to cache lines.
LEAST_LINES: Final = 16
# The bytes of a configuration; eight of its entries are those of tiles.
_ENTRIES: Final = 16


class TileNest(StripNest):
    """Register tiles of whole tiles of sums."""

    _tiling: MatrixTiling

    def _instructions(self) -> ExitStack:
        t = self._tiling
        frames = ExitStack()
        frames.enter_context(llvm_definition(_DEFINITION))
        frames.enter_context(self._results.frame())
        shape = (t.block_rows * TILE_ROWS, t.vectors, self._lanes)
        kind = self._workload.numerics.sum
        self._scratch = T.alloc_buffer(shape, kind, layout=None)
        return frames

    @contextmanager
    def _products(self) -> Iterator[None]:
        """Configure the tiles after all memory is allocated: a task that fails before has none."""
        configuration = T.alloc_buffer((8,), "int64", scope="local", layout=None)
        for place, word in enumerate(np.frombuffer(_configuration(self._tiling), np.int64)):
            T.buffer_store(configuration, tirx.const(int(word), "int64"), [place])
        _emit("ldtilecfg", tirx.address_of(configuration[0]))
        yield
        _emit("tilerelease")

    def _strip(self) -> Any:
        t, block = self._tiling, self._scheme.ic_bn
        lines = t.image_chunks * t.strip_rows * block * t.element // ROW_BYTES
        columns = max(t.strip_columns, ceil_div(LEAST_LINES, max(1, lines)))
        shape = (t.image_chunks, t.strip_rows, columns, block)
        return T.alloc_buffer(shape, self._copied_type, layout=None)

    def _tile(self, at: Tile, source: Source, start: Start) -> None:
        t = self._tiling
        for number in range(t.block_rows * t.block_columns):
            _emit("tilezero", _number(number))
        chunks, steps = t.unrolled_chunks, t.unrolled_steps
        with self._serial(t.chunks // chunks) as first, self._rows() as rows:
            with self._serial(t.steps // steps) as part:
                T.evaluate(tirx.call_extern("void", _AWAKE))
                inner = product(range(chunks), rows, range(t.window_columns), range(steps))
                for chunk, kh, kw, step in inner:
                    line = (at[1], first * chunks + chunk, kh, kw, part * steps + step)
                    self._multiply(line, source)
        stride = t.vectors * ROW_BYTES
        for i, j in product(range(t.block_rows), range(t.block_columns)):
            place = tirx.address_of(self._scratch[i * t.rows_of_block, j, 0])
            _emit("tilestored64", _number(i * t.block_columns + j), place, _bytes(stride))
        self._store(self._scratch, at)

    def _multiply(self, at: tuple[Any, ...], source: Source) -> None:
        t, w, unit = self._tiling, self._workload, self._unit
        block, chunk, kh, kw, step = at
        sums = t.block_rows * t.block_columns
        group = step * (t.depth // unit.group)
        left = TILES - sums - t.block_rows
        for j in range(t.block_columns):
            taps = sums + t.block_rows + j % left
            place = self._weights[block, chunk, kh, kw, group, j * ROW_BYTES // t.element]
            self._load(taps, place, self._scheme.reg_oc * unit.group * t.element)
            for i in range(t.block_rows):
                if j == 0:
                    x = i * t.rows_of_block * t.column_step + kw * w.dilation[1]
                    pixel = source(chunk, kh * w.dilation[0], x, step * t.depth)
                    self._load(sums + i, pixel, t.row_stride)
                self._product(i * t.block_columns + j, sums + i, taps)

    def _load(self, tile: int, first: Any, stride: int) -> None:
        _emit("tileloadd64", _number(tile), tirx.address_of(first), _bytes(stride))

    def _product(self, sums: int, data: int, weights: int) -> None:
        _emit(self._unit.instruction.name, *map(_number, (sums, data, weights)))

    def _store_vectors(self, sums: Any, v: int, at: tuple[Any, ...]) -> None:
        image, chunk, row, column, lane = at
        vector = T.alloc_buffer((1, self._lanes), str(sums.dtype), scope="local", layout=None)
        with T.serial(self._scheme.reg_n) as j:
            T.buffer_store(vector, sums[j, v, self._every], [0, self._every])
            self._results.store(vector, (0,), (image, chunk, row, column + j), lane)


def _configuration(tiling: MatrixTiling) -> bytes:
    """Return the operand of LDTILECFG: the bytes of a row, and the rows, of each tile."""
    t = tiling
    sums, data = t.block_rows * t.block_columns, t.block_rows
    weights = TILES - sums - data
    widths = [ROW_BYTES] * sums + [t.depth * t.element] * data + [ROW_BYTES] * weights
    rows = [t.rows_of_block] * (sums + data) + [t.depth // t.unit.group] * weights
    none = [0] * (_ENTRIES - TILES)
    palette = 1
    return struct.pack("<BB14x16H16B", palette, 0, *widths, *none, *rows, *none)


def _emit(name: str, *operands: Any) -> None:
    T.evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))


def _number(tile: int) -> Any:
    return tirx.const(tile, "int8")


def _bytes(count: int) -> Any:
    return tirx.const(count, "int64")
