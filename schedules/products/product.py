"""Products of two activations, both read in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

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
from neocpu.schedules.tir.builder import build_kernel, digits, task_loop
from neocpu.schedules.tir.llvm_text import opaque_numbers
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

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
    for row in rows:
        for panel, widths in each_panel(w.columns, lanes):
            sums = tile.multiply(
                w.depth, len(widths), left.rows_from(row), reader(panels, panel, lanes)
            )
            for r, (v, width) in product(range(tile.height), enumerate(widths)):
                _store(output, row + r, (panel * VECTORS + v) * lanes, width, sums, (r, v))


def _in_tiles(
    w: ProductWorkload, tile: TileRows, matrices: Sequence[Matrix], rows: Iterator[Any]
) -> None:
    (left, right, output), lanes = matrices, tile.lanes
    panels = tile.pack(right, w.depth, w.columns, w.scale)
    factors, sums = tile.allocate_rows(w.depth), tile.allocate_sums()
    with tile.configured():
        for row in rows:
            tile.put(factors, w.depth, left.vectors_from(row))
            for panel, widths in each_panel(w.columns, lanes):
                tile.multiply_sums(sums, w.depth, len(widths), factors, Panel(panels, panel))
                with T.serial(tile.height) as r:
                    for v, width in enumerate(widths):
                        column = (panel * VECTORS + v) * lanes
                        _store(output, row + r, column, width, sums, (r, v))


def _store(output: Matrix, row: Any, column: Any, width: int, sums: Any, at: Any) -> None:
    with T.vectorized(width) as o:
        T.buffer_store(output.buffer, sums[(*at, o)], [output.place(row, column + o)])
