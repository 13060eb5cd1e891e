"""Products of two activations, both read in place."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, Final

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import LINE
from neocpu.schedules.estimates.register_tile import L2_RATE
from neocpu.schedules.products.panel import (
    VECTORS,
    allocate,
    each_panel,
    matrix_at,
    pack,
    pack_cycles,
    reader,
)
from neocpu.schedules.products.row_tile import busiest_seconds, choose_tile, parts_of
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
    size = 4 * w.depth * w.columns
    tile = choose_tile(w.rows, size, target)
    matrices = math.prod(w.batch)
    parts = parts_of(matrices, tile.count, threads)
    tiles = tile.cycles(w.depth, w.columns, size, target)
    apart = w.left.stride(len(w.batch) + 1)
    if apart > 1:  # each broadcast number fetches its neighbours too
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
    tile = choose_tile(w.rows, 4 * w.depth * w.columns, target)
    matrices, lanes = math.prod(w.batch), tile.lanes
    parts = parts_of(matrices, tile.count, threads)
    parameters = [
        (name, (view.size,), "float32")
        for name, view in (("left", w.left), ("right", w.right), ("output", w.output))
    ]

    def body(*buffers: Any) -> None:
        with opaque_numbers(), task_loop(matrices * parts, w.flops // lanes) as task:
            index = [T.Bind(one) for one in digits(task // parts, w.batch)]
            left, right, output = (
                matrix_at(buffer, view, index)
                for buffer, view in zip(buffers, (w.left, w.right, w.output), strict=True)
            )
            panels = allocate(w.depth, w.columns, lanes)
            pack(panels, right, w.depth, w.columns, lanes, w.scale)
            for row in tile.each(task % parts, parts):
                for panel, widths in each_panel(w.columns, lanes):
                    sums = tile.multiply(
                        w.depth, len(widths), left.rows_from(row), reader(panels, panel, lanes)
                    )
                    for r, (v, width) in product(range(tile.height), enumerate(widths)):
                        with T.vectorized(width) as o:
                            place = output.place(row + r, (panel * VECTORS + v) * lanes + o)
                            T.buffer_store(output.buffer, sums[r, v, o], [place])

    return vectorize_calls(build_kernel(parameters, body))
