"""Products of two activations, both read in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import LINE
from neocpu.schedules.estimates.register_tile import L2_RATE
from neocpu.schedules.products.panel import (
    VECTORS,
    Matrix,
    allocate,
    each_panel,
    matrix_at,
    pack,
    pack_cycles,
    reader,
)
from neocpu.schedules.products.row_tile import RowTile, busiest_seconds, parts_of
from neocpu.schedules.products.tile_rows import Panel, TileRows, choose_rows, product_instructions
from neocpu.schedules.products.workloads import ProductWorkload
from neocpu.schedules.tir.builder import build_kernel, digits, known, span, task_loop
from neocpu.schedules.tir.llvm_text import opaque_numbers
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import varies

# The cycles of storing a single element of a vector.
PUT_CYCLES: Final = 1.5


def estimate(workload: ProductWorkload, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds: the busiest thread's packing and register tiles."""
    w = workload
    size = w.panel_bytes
    tile = choose_rows(w.rows, size, target, w.products, w.splits)
    matrices = math.prod(w.batch)
    parts = parts_of(matrices, tile.count, threads)
    tiles = tile.cycles(w.depth, w.columns, size, target)
    apart = w.left.stride(len(w.batch) + 1)
    if apart > 1 and isinstance(tile, TileRows):
        tiles += tile.height * w.depth * PUT_CYCLES
    elif apart > 1:  # each broadcast number fetches its neighbours too
        tiles += tile.height * w.depth * min(4 * apart, LINE) / L2_RATE
    if w.output.stride(len(w.batch) + 1) > 1:
        tiles += tile.height * w.columns * PUT_CYCLES
    each = ceil_div(tile.count, parts) * tiles
    each += pack_cycles(w.right, w.depth, w.columns, tile.lanes)
    moved = 4 * matrices * (w.rows * (w.depth + w.columns) + w.depth * w.columns)
    return busiest_seconds(matrices * parts, each, moved, target, threads)


def lower_product(workload: ProductWorkload, target: CpuTarget, threads: int = 1) -> Any:
    """Return the scheduled ``PrimFunc(left, right, output)`` of flat float32 tensors::

    parallel batch · part of the rows
      pack scale * right                                     # before sums could overflow
      for tile of rows
        for panel
          sums[height, vectors] = 0                            # registers
          for k: sums += broadcast(left[row, k]) * right[k, panel]
          output = scale * sums
    """
    w = workload
    tile = choose_rows(w.rows, w.panel_bytes, target, w.products, w.splits)
    matrices, lanes = math.prod(w.batch), tile.lanes
    parts = parts_of(matrices, tile.count, threads)
    parameters = [
        (name, (view.size,), "float32")
        for name, view in (("left", w.left), ("right", w.right), ("output", w.output))
    ]

    def body(*buffers: Any) -> None:
        tasks = task_loop(matrices * parts, w.flops // lanes)
        with opaque_numbers(), tasks as task, product_instructions(tile, w.depth, w.columns):
            index = [T.Bind(one) for one in digits(task // parts, w.batch)]
            own = [
                matrix_at(buffer, view, index)
                for buffer, view in zip(buffers, (w.left, w.right, w.output), strict=True)
            ]
            rows = tile.each(task % parts, parts)
            if isinstance(tile, TileRows):
                _in_tiles(w, tile, own, rows)
            else:
                _in_vectors(w, tile, own, rows)

    return vectorize_calls(build_kernel(parameters, body))


def _in_vectors(
    w: ProductWorkload, tile: RowTile, matrices: Sequence[Matrix], rows: Iterator[Any]
) -> None:
    (left, right, output), lanes = matrices, tile.lanes
    panels = allocate(w.depth, w.columns, lanes)
    pack([panels], right, w.depth, w.columns, lanes, w.scale)
    shape = (tile.height, w.depth)
    copied = T.alloc_buffer(shape, "float32", layout=None) if tile.may_lack_rows else None
    last = None
    if varies(w.columns):
        last = T.alloc_buffer((tile.height, VECTORS, lanes), "float32", layout=None)
    for row in rows:
        factor = left.rows_from(row)
        if copied is not None:
            tile.copy_rows(copied, left, w.depth, row)
            factor = partial(_element, copied)
        for panel, widths in _panels(w.columns, lanes):
            sums = tile.multiply(w.depth, len(widths), factor, reader(panels, panel, lanes))
            for r, (v, width) in product(range(tile.height), enumerate(widths)):
                column = (panel * VECTORS + v) * lanes
                _store(output, tile.place(row, r), column, width, sums, (r, v))
        if last is not None:
            with _last_panel(w.columns, lanes) as panel:
                read = reader(panels, panel, lanes)
                sums = tile.multiply(w.depth, VECTORS, factor, read)
                for r, v in product(range(tile.height), range(VECTORS)):
                    every = span(0, lanes)
                    T.buffer_store(last, sums[r, v, every], [r, v, every])
                _store_last(w, tile, output, row, last)


def _element(rows: Any, row: Any, column: Any) -> Any:
    return rows[row, column]


def _panels(columns: int, lanes: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Emit the body for each panel as `each_panel` does; for columns that vary, all whole ones."""
    if not varies(columns):
        yield from each_panel(columns, lanes)
        return
    with T.serial(known(columns) // (VECTORS * lanes)) as panel:
        yield panel, (lanes,) * VECTORS


@contextmanager
def _last_panel(columns: int, lanes: int) -> Iterator[Any]:
    """Emit the body for the panel after all whole ones, unless it has no columns."""
    count, width = known(columns), VECTORS * lanes
    whole = T.Bind(count // width)
    with T.serial((count + (width - 1)) // width - whole) as number:
        yield whole + number


def _store_last(w: ProductWorkload, tile: RowTile, output: Matrix, row: Any, sums: Any) -> None:
    """Emit the stores of the last panel's columns, one by one."""
    width, count = VECTORS * tile.lanes, known(w.columns)
    first = T.Bind(count // width * width)
    with T.serial(tile.height) as r, T.serial(count - first) as c:
        value = sums[r, tirx.floordiv(c, tile.lanes), tirx.floormod(c, tile.lanes)]
        place = output.place(tile.place(row, r), first + c)
        T.buffer_store(output.buffer, value, [place])


def _in_tiles(
    w: ProductWorkload, tile: TileRows, matrices: Sequence[Matrix], rows: Iterator[Any]
) -> None:
    (left, right, output), lanes = matrices, tile.lanes
    panels = tile.pack(right, w.depth, w.columns, w.scale)
    factors, sums = tile.allocate_rows(w.depth), tile.allocate_sums()
    with tile.configured():
        for row in rows:
            tile.put(factors, w.depth, partial(_vector, tile, left, row))
            for panel, widths in _panels(w.columns, lanes):
                tile.multiply_sums(sums, w.depth, len(widths), factors, Panel(panels, panel))
                with T.serial(tile.height) as r:
                    for v, width in enumerate(widths):
                        column = (panel * VECTORS + v) * lanes
                        _store(output, tile.place(row, r), column, width, sums, (r, v))
            if varies(w.columns):
                with _last_panel(w.columns, lanes) as panel:
                    tile.multiply_sums(sums, w.depth, VECTORS, factors, Panel(panels, panel))
                    _store_last(w, tile, output, row, sums)


def _vector(tile: RowTile, left: Matrix, first: Any, row: Any, column: Any, width: int) -> Any:
    return left.vector(tile.place(first, row), column, width)


def _store(output: Matrix, row: Any, column: Any, width: int, sums: Any, at: Any) -> None:
    with T.vectorized(width) as o:
        T.buffer_store(output.buffer, sums[(*at, o)], [output.place(row, column + o)])
