"""Attention as one kernel that never stores its scores: softmax(scale q kᵀ + biases) v.

A task takes the queries of one head, or a part of them. It packs the head's keys and values into
panels, which stay in L2, and processes the queries in register tiles. A tile's scores lie in L1
until they have been multiplied with the values. Many keys are processed in blocks; the sums of
earlier blocks are then rescaled to the largest score so far (Milakov and Gimelshein, 2018).

With products of bfloat16, panels hold pairs of bfloat16, and a tile's queries and powers are
rounded before they are multiplied. Scores, their powers and all sums are float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.products.panel import (
    VECTORS,
    allocate,
    allocate_pairs,
    each_panel,
    matrix_at,
    pack,
    pack_cycles,
    reader,
)
from neocpu.schedules.products.row_tile import (
    RowSoftmax,
    RowTile,
    busiest_seconds,
    choose_tile,
    parts_of,
)
from neocpu.schedules.products.workloads import AttentionWorkload
from neocpu.schedules.tir.bfloat16 import BITS, dot_products, rounded_bits, roundings
from neocpu.schedules.tir.builder import build_kernel, digits, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.llvm_text import opaque_numbers
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.strided_view import StridedView
from neocpu.schedules.vocabulary.target import CpuTarget

# The most keys whose scores are computed before the softmax: a tile's scores of more do not fit L1.
BLOCK_KEYS: Final = 512
# The cycles of the softmax of a vector of scores, where each waits for the last one, and of a row:
# its largest score and the sum of its powers, lane by lane.
SOFTMAX_CYCLES: Final = 12
ROW_CYCLES: Final = 60


def estimate(workload: AttentionWorkload, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds: the busiest thread's packing, products and softmax."""
    w = workload
    size = w.panel_bytes
    tile = choose_tile(w.queries, size, target, w.products)
    heads = math.prod(w.batch)
    parts = parts_of(heads, tile.count, threads)
    blocks = ceil_div(w.keys, BLOCK_KEYS)
    softmax = SOFTMAX_CYCLES * ceil_div(w.keys, tile.lanes) + ROW_CYCLES * blocks
    products = tile.cycles(w.depth, w.keys, size, target)
    products += tile.cycles(w.keys, w.width, size, target)
    each = ceil_div(tile.count, parts) * (products + tile.height * softmax)
    each += pack_cycles(_transposed(w.k), w.depth, w.keys, tile.lanes)
    each += pack_cycles(w.v, w.keys, w.width, tile.lanes)
    moved = 4 * heads * (w.queries + w.keys) * (w.depth + w.width)
    moved += 4 * heads * w.queries * w.keys * len(w.biases)
    return busiest_seconds(heads * parts, each, moved, target, threads)


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
    tile = choose_tile(w.queries, w.panel_bytes, target, w.products)
    heads = math.prod(w.batch)
    parts = parts_of(heads, tile.count, threads)

    def body(*buffers: Any) -> None:
        tasks = task_loop(heads * parts, w.flops // tile.lanes)
        with opaque_numbers(), tasks as number, _instructions(w, tile):
            index = [T.Bind(one) for one in digits(number // parts, w.batch)]
            task = _Task(w, tile, buffers, index)
            for row in tile.each(number % parts, parts):
                task.emit_tile(row)

    return vectorize_calls(build_kernel(parameters, body))


def _instructions(workload: AttentionWorkload, tile: RowTile) -> Any:
    """Return the frame that instructions for products of bfloat16 need around them."""
    frames = ExitStack()
    if tile.unit.group > 1:
        w, lanes = workload, tile.lanes
        tails = (size % lanes for size in (w.depth, w.keys, w.width))
        squares = (1 << power for power in range(lanes.bit_length()))
        frames.enter_context(dot_products(tile.unit.intrinsic, lanes))
        frames.enter_context(roundings({lanes, *tails, *squares} - {0}))
    return frames


class _Task:
    """An emitter of a task: some register tiles of queries of one head."""

    def __init__(
        self, workload: AttentionWorkload, tile: RowTile, buffers: Sequence[Any], index: list[Any]
    ) -> None:
        w = self._workload = workload
        q, k, v, *biases, output = buffers
        self._tile, self._lanes = tile, tile.lanes
        self._q = matrix_at(q, w.q, index)
        self._output = matrix_at(output, w.output, index)
        self._biases = [
            matrix_at(bias, view, index) for bias, view in zip(biases, w.biases, strict=True)
        ]
        self._group = tile.unit.group
        panels = allocate if self._group == 1 else allocate_pairs
        self._keys = panels(w.depth, w.keys, self._lanes)
        # Keys, of which there are fewer than scores, are scaled before sums could overflow.
        keys = matrix_at(k, w.k, index).transposed()
        pack(self._keys, keys, w.depth, w.keys, self._lanes, w.scale)
        self._values = panels(w.keys, w.width, self._lanes)
        pack(self._values, matrix_at(v, w.v, index), w.keys, w.width, self._lanes)
        panel = VECTORS * self._lanes
        self._block = ceil_div(ceil_div(w.keys, ceil_div(w.keys, BLOCK_KEYS)), panel) * panel
        self._in_blocks = w.keys > self._block
        self._softmax = RowSoftmax(tile, min(self._block, w.keys))
        if self._group > 1:
            even = ceil_div(w.depth, self._group) * self._group
            self._rounded_queries = T.alloc_buffer((tile.height, even), BITS, layout=None)
            powers = self._softmax.scores.shape
            self._rounded_powers = T.alloc_buffer(powers, BITS, layout=None)
        if self._in_blocks:
            shape = (tile.height, ceil_div(w.width, self._lanes), self._lanes)
            self._sums = T.alloc_buffer(shape, "float32", layout=None)

    def emit_tile(self, row: Any) -> None:
        """Emit the register tile of the queries from ``row`` on."""
        w = self._workload
        if self._group > 1:
            self._round_queries(row)
        if not self._in_blocks:
            self._emit_powers(row, 0, w.keys)
            self._softmax.finish()
            for panel, widths in each_panel(w.width, self._lanes):
                sums = self._weighted_values(panel, len(widths), 0, w.keys)
                self._store(row, panel, widths, sums, 0)
            return
        self._softmax.begin()
        with T.serial(self._tile.height) as r, T.serial(ceil_div(w.width, self._lanes)) as v:
            zero = splat(tirx.const(0, "float32"), self._lanes)
            T.buffer_store(self._sums, zero, [r, v, span(0, self._lanes)])
        full, rest = divmod(w.keys, self._block)
        with T.serial(full) as block:
            self._emit_block(row, block * self._block, self._block)
        if rest:
            self._emit_block(row, full * self._block, rest)
        self._softmax.finish()
        for panel, widths in each_panel(w.width, self._lanes):
            self._store(row, panel, widths, self._sums, panel * VECTORS)

    def _emit_block(self, row: Any, first: Any, keys: int) -> None:
        self._emit_powers(row, first, keys)
        for panel, widths in each_panel(self._workload.width, self._lanes):
            sums = self._weighted_values(panel, len(widths), first, keys)
            for r, v in product(range(self._tile.height), range(len(widths))):
                with T.vectorized(self._lanes) as o:
                    at = (r, panel * VECTORS + v, o)
                    before = self._sums[at] * self._softmax.rescale[r]
                    T.buffer_store(self._sums, before + sums[r, v, o], list(at))

    def _emit_powers(self, row: Any, first: Any, keys: int) -> None:
        """Emit the scores of a tile and a block of keys, and their powers for the softmax."""
        w, lanes, scores = self._workload, self._lanes, self._softmax.scores
        before = first // (VECTORS * lanes)
        queries = self._q.rows_from(row)
        if self._group > 1:
            queries = _pairs(self._rounded_queries)
        for panel, widths in each_panel(keys, lanes):
            keys_read = reader(self._keys, before + panel, lanes)
            sums = self._tile.multiply(w.depth, len(widths), queries, keys_read)
            for r, (v, width) in product(range(self._tile.height), enumerate(widths)):
                column = panel * VECTORS * lanes + v * lanes
                with T.vectorized(width) as o:
                    score = sums[r, v, o]
                    for bias in self._biases:
                        score = score + bias.element(row + r, first + column + o)
                    T.buffer_store(scores, score, [r, column + o])
                if width < lanes:
                    lowest = splat(tirx.const(-math.inf, "float32"), lanes - width)
                    T.buffer_store(scores, lowest, [r, span(column + width, lanes - width)])
        self._softmax.emit(keys, is_whole=not self._in_blocks)
        if self._group > 1:
            with T.serial(self._tile.height) as r, T.serial(ceil_div(keys, lanes)) as i:
                vector = span(i * lanes, lanes)
                bits = rounded_bits(scores[r, vector], lanes)
                T.buffer_store(self._rounded_powers, bits, [r, vector])

    def _round_queries(self, row: Any) -> None:
        """Emit the queries of a tile in bfloat16, followed by a zero if the depth is odd."""
        depth, rounded = self._workload.depth, self._rounded_queries

        def copy(column: Any, width: int) -> None:
            bits = rounded_bits(self._q.vector(row + r, column, width), width)
            T.buffer_store(rounded, bits, [r, span(column, width)])

        with T.serial(self._tile.height) as r:
            for_vectors(depth, self._lanes, copy)
            if depth % self._group:
                T.buffer_store(rounded, tirx.const(0, BITS), [r, depth])

    def _weighted_values(self, panel: Any, vectors: int, first: Any, keys: int) -> Any:
        scores = self._softmax.scores
        values = reader(self._values, panel, self._lanes, first // self._group)
        powers = _pairs(self._rounded_powers) if self._group > 1 else lambda r, k: scores[r, k]
        return self._tile.multiply(keys, vectors, powers, values)

    def _store(self, row: Any, panel: Any, widths: Sequence[int], sums: Any, first: Any) -> None:
        """Store the vectors of a panel, which are those of ``sums`` from ``first`` on."""
        for r, (v, width) in product(range(self._tile.height), enumerate(widths)):
            with T.vectorized(width) as o:
                column = (panel * VECTORS + v) * self._lanes + o
                value = sums[r, first + v, o] * self._softmax.factor[r]
                if self._workload.zeros:
                    # The reciprocal of an empty sum is infinite.
                    is_number = self._softmax.factor[r] < tirx.const(math.inf, "float32")
                    value = T.Select(is_number, value, tirx.const(0, "float32"))
                place = self._output.place(row + r, column)
                T.buffer_store(self._output.buffer, value, [place])


def _pairs(rows: Any) -> Callable[[int, Any], Any]:
    """Return ``read(row, k)``, which reads pair ``k`` of a row of bfloat16 as int32."""
    return lambda row, k: tirx.reinterpret("int32", rows[row, span(2 * k, 2)])
