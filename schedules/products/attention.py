"""Attention as one kernel that never stores its scores: softmax(scale q kᵀ + biases) v.

A task takes the queries of one head, or a part of them. It packs the head's keys and values into
panels, which stay in L2, and processes the queries in register tiles. A tile's scores lie in L1
until they have been multiplied with the values. Many keys are processed in blocks; the sums of
earlier blocks are then rescaled to the largest score so far (Milakov and Gimelshein, 2018).

With products of bfloat16, panels hold pairs of bfloat16, and a tile's queries and powers are
rounded before they are multiplied. Scores, their powers and all sums are float32. CPUs with tile
registers of bfloat16 multiply by them, and products of float32 too if values are split.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.products.attention_task import Task
from neocpu.schedules.products.panel import pack_cycles
from neocpu.schedules.products.row_tile import RowTile, busiest_seconds, parts_of
from neocpu.schedules.products.tile_attention_task import TileTask
from neocpu.schedules.products.tile_rows import TileRows, choose_rows, product_instructions
from neocpu.schedules.products.workloads import AttentionWorkload
from neocpu.schedules.tir.builder import build_kernel, digits, task_loop
from neocpu.schedules.tir.llvm_text import opaque_numbers
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.strided_view import StridedView
from neocpu.schedules.vocabulary.target import CpuTarget

# The cycles of the softmax of a vector of scores, where each waits for the last one, and of a row:
# its largest score and the sum of its powers, lane by lane.
SOFTMAX_CYCLES: Final = 12
ROW_CYCLES: Final = 60


def estimate(workload: AttentionWorkload, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds: the busiest thread's packing, products and softmax."""
    w = workload
    size = w.panel_bytes
    tile = _choose_tile(w, target)
    heads = math.prod(w.batch)
    parts = parts_of(heads, tile.count, threads)
    blocks = ceil_div(w.keys, tile.most_columns)
    softmax = SOFTMAX_CYCLES * ceil_div(w.keys, tile.lanes) + ROW_CYCLES * blocks
    products = tile.cycles(w.depth, w.keys, size, target)
    products += tile.cycles(w.keys, w.width, size, target)
    each = ceil_div(tile.count, parts) * (products + tile.height * softmax)
    each += pack_cycles(_transposed(w.k), w.depth, w.keys, tile.lanes)
    each += pack_cycles(w.v, w.keys, w.width, tile.lanes)
    moved = 4 * heads * (w.queries + w.keys) * (w.depth + w.width)
    moved += 4 * heads * w.queries * w.keys * len(w.biases)
    return busiest_seconds(heads * parts, each, moved, target, threads)


def _choose_tile(workload: AttentionWorkload, target: CpuTarget) -> RowTile:
    w = workload
    return choose_rows(w.queries, w.panel_bytes, target, w.products, w.splits)


def _transposed(view: StridedView) -> StridedView:
    *batch, row, column = range(len(view.axes))
    return view.permuted((*batch, column, row))


def lower_attention(workload: AttentionWorkload, target: CpuTarget, threads: int = 1) -> Any:
    """Return the scheduled ``PrimFunc(q, k, v, *biases, output)`` of flat float32 tensors::

        parallel batch · part of the queries
          pack scale * k, and v
          for tile of queries
            for block of keys
              scores = q (scale * k)ᵀ + biases               # register tiles, into L1
              for row: largest score, p = 2^(score - it), sum
              sums = sums * 2^(largest before - largest) + p v
            output = sums / sum

    A row whose scores are all -inf becomes NaN, as a softmax has it, or zeros.
    """
    names = ("q", "k", "v", *(f"bias{i}" for i in range(len(workload.biases))), "output")
    views = (workload.q, workload.k, workload.v, *workload.biases, workload.output)
    parameters = [(name, (view.size,), "float32") for name, view in zip(names, views, strict=True)]

    w = workload
    tile = _choose_tile(w, target)
    heads = math.prod(w.batch)
    parts = parts_of(heads, tile.count, threads)

    def body(*buffers: Any) -> None:
        tasks = task_loop(heads * parts, w.flops // tile.lanes)
        extents = (w.depth, w.keys, w.width)
        with opaque_numbers(), tasks as number, product_instructions(tile, *extents):
            index = [T.Bind(one) for one in digits(number // parts, w.batch)]
            kind = TileTask if isinstance(tile, TileRows) else Task
            task = kind(w, tile, buffers, index)
            with task.products():
                for row in tile.each(number % parts, parts):
                    task.emit_tile(row)

    return vectorize_calls(build_kernel(parameters, body))
