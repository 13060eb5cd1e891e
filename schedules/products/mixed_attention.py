"""Attention with mixed heads as one kernel that never stores its scores.

It computes ``mix(softmax(mix(scale q kᵀ + biases))) v``, where a mix replaces the scores of all
heads by weighted sums of them (Shazeer et al., "Talking-Heads Attention", 2020; CaiT, DeepViT). A
task takes a part of the queries, for all heads: a register tile's scores of all heads lie in L1
from the first product to the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.errors import UnsupportedError
from neocpu.schedules.products.attention import SOFTMAX_CYCLES
from neocpu.schedules.products.panel import (
    VECTORS,
    Matrix,
    allocate,
    each_panel,
    matrix_at,
    pack,
    pack_cycles,
    panels_of,
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
from neocpu.schedules.tir.builder import build_kernel, digits, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.llvm_text import opaque_numbers
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import varies

MOST_SCORES: Final = 1 << 16
"""The most heads times keys: with more, a tile's scores fit no cache."""


def mix_size(heads: int) -> int:
    """Return the elements of a mix: ``(heads, heads)`` weights, a row per output, then biases."""
    return heads * heads + heads


def estimate(workload: AttentionWorkload, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds: the busiest thread's packing, products, sums and softmax."""
    w, heads = workload, workload.batch[-1]
    size = 4 * heads * w.keys * (w.depth + w.width)
    tile = choose_tile(w.queries, size, target)
    images = math.prod(w.batch[:-1])
    parts = parts_of(images, tile.count, threads)
    products = tile.cycles(w.depth, w.keys, size, target)
    products += tile.cycles(w.keys, w.width, size, target)
    vectors = tile.height * ceil_div(w.keys, tile.lanes)
    each = ceil_div(tile.count, parts) * (products + vectors * (SOFTMAX_CYCLES + w.mixes * heads))
    each += 2 * pack_cycles(w.v, w.keys, w.width, tile.lanes)
    moved = 4 * images * heads * (w.queries + w.keys) * (w.depth + w.width)
    return busiest_seconds(images * parts, heads * each, moved, target, threads)


def lower_mixed_attention(workload: AttentionWorkload, target: CpuTarget, threads: int = 1) -> Any:
    """Return the scheduled ``PrimFunc(q, k, v, *biases, *mixes, output)`` of flat float32 tensors.

    Each of ``mixes`` has `mix_size` elements::

        parallel image · part of the queries
          for head: pack scale * k, and v
          for tile of queries
            for head: scores[head] = q (scale * k)ᵀ + biases          # register tiles, into L1
            for row: scores[all heads] = bias + weights scores[all heads]
            for head, row: p = 2^(score - largest), sum
            for row: p[all heads] = bias + weights (p / sum)[all heads]
            for head: output = p v
    """
    w, heads = workload, workload.batch[-1]
    if varies(*w.batch, w.queries, w.keys):
        raise UnsupportedError(
            f"attention with mixed heads ({w}) has one number of tokens: give a single shape"
        )
    tile = choose_tile(w.queries, 4 * heads * w.keys * (w.depth + w.width), target)
    images = math.prod(w.batch[:-1])
    parts = parts_of(images, tile.count, threads)
    named = [("q", w.q), ("k", w.k), ("v", w.v)]
    named += [(f"bias{i}", view) for i, view in enumerate(w.biases)]
    sizes = [(name, view.size) for name, view in named]
    sizes += [(f"mix{i}", mix_size(heads)) for i in range(w.mixes)]
    sizes.append(("output", w.output.size))
    parameters = [(name, (size,), "float32") for name, size in sizes]

    def body(*buffers: Any) -> None:
        with opaque_numbers(), task_loop(images * parts, w.flops // tile.lanes) as number:
            index = [T.Bind(one) for one in digits(number // parts, w.batch[:-1])]
            task = _Task(w, tile, buffers, index)
            for row in tile.each(number % parts, parts):
                task.emit_tile(row)

    return vectorize_calls(build_kernel(parameters, body))


class _Task:
    """An emitter of a task: some register tiles of queries, for all heads of an image."""

    def __init__(
        self, workload: AttentionWorkload, tile: RowTile, buffers: Sequence[Any], index: list[Any]
    ) -> None:
        w = self._workload = workload
        self._q, k, v, *rest, self._output = buffers
        self._biases, mixes = rest[: len(w.biases)], iter(rest[len(w.biases) :])
        self._before = next(mixes) if w.mixed_before else None
        self._after = next(mixes) if w.mixed_after else None
        self._tile, self._lanes, self._index = tile, tile.lanes, index
        self._heads = heads = w.batch[-1]
        self._keys = allocate(w.depth, w.keys, self._lanes, heads)
        self._values = allocate(w.keys, w.width, self._lanes, heads)
        with T.serial(heads) as head:
            keys = matrix_at(k, w.k, [*index, head]).transposed()
            first = head * panels_of(w.keys, self._lanes)
            pack([self._keys], keys, w.depth, w.keys, self._lanes, w.scale, first)
            values = matrix_at(v, w.v, [*index, head])
            first = head * panels_of(w.width, self._lanes)
            pack([self._values], values, w.keys, w.width, self._lanes, 1.0, first)
        rows = heads * tile.height
        self._softmax = RowSoftmax(RowTile(rows, rows, tile.unit), w.keys)

    def emit_tile(self, row: Any) -> None:
        """Emit the register tile of the queries from ``row`` on."""
        w = self._workload
        with T.serial(self._heads) as head:
            self._emit_scores(head, row)
        if self._before is not None:
            self._emit_mix(self._before, scaled=False)
        self._emit_padding()
        self._softmax.emit(w.keys, is_whole=True)
        self._softmax.finish()
        if self._after is not None:
            self._emit_mix(self._after, scaled=True)
        with T.serial(self._heads) as head:
            self._emit_values(head, row)

    def _at(self, head: Any, r: Any) -> Any:
        """Return the row of the scores that belongs to a row of a head's tile."""
        return head * self._tile.height + r

    def _matrix(self, buffer: Any, view: Any, head: Any) -> Matrix:
        return matrix_at(buffer, view, [*self._index, head])

    def _emit_scores(self, head: Any, row: Any) -> None:
        w, lanes = self._workload, self._lanes
        q = self._matrix(self._q, w.q, head)
        biases = [
            self._matrix(bias, view, head)
            for bias, view in zip(self._biases, w.biases, strict=True)
        ]
        for panel, widths in each_panel(w.keys, lanes):
            keys = reader(self._keys, head * panels_of(w.keys, lanes) + panel, lanes)
            sums = self._tile.multiply(w.depth, len(widths), q.rows_from(row), keys)
            for r, (v, width) in product(range(self._tile.height), enumerate(widths)):
                column = (panel * VECTORS + v) * lanes
                with T.vectorized(width) as o:
                    score = sums[r, v, o]
                    for bias in biases:
                        score = score + bias.element(row + r, column + o)
                    T.buffer_store(self._softmax.scores, score, [self._at(head, r), column + o])

    def _emit_padding(self) -> None:
        """Emit values for lanes beyond the last key that exclude them from the softmax."""
        missing = -self._workload.keys % self._lanes
        if missing:
            lowest = splat(tirx.const(-math.inf, "float32"), missing)
            with T.serial(self._heads * self._tile.height) as r:
                place = [r, span(self._workload.keys, missing)]
                T.buffer_store(self._softmax.scores, lowest, place)

    def _emit_mix(self, mix: Any, *, scaled: bool) -> None:
        """Emit mixes of all heads' scores, or if ``scaled`` of their softmax."""
        scores, factor, heads = self._softmax.scores, self._softmax.factor, self._heads
        with T.serial(self._tile.height) as r:

            def mixed(first: Any, width: int) -> None:
                given = [scores[self._at(head, r), span(first, width)] for head in range(heads)]
                if scaled:
                    factors = (splat(factor[self._at(head, r)], width) for head in range(heads))
                    given = [one * each for one, each in zip(given, factors, strict=True)]
                given = [T.Bind(one) for one in given]
                for made in range(heads):
                    total = splat(mix[heads * heads + made], width)
                    for head, one in enumerate(given):
                        total = total + splat(mix[made * heads + head], width) * one
                    T.buffer_store(scores, total, [self._at(made, r), span(first, width)])

            for_vectors(self._workload.keys, self._lanes, mixed)

    def _emit_values(self, head: Any, row: Any) -> None:
        w, lanes, scores = self._workload, self._lanes, self._softmax.scores
        output = self._matrix(self._output, w.output, head)
        for panel, widths in each_panel(w.width, lanes):
            values = reader(self._values, head * panels_of(w.width, lanes) + panel, lanes)
            sums = self._tile.multiply(
                w.keys, len(widths), lambda r, k: scores[self._at(head, r), k], values
            )
            for r, (v, width) in product(range(self._tile.height), enumerate(widths)):
                with T.vectorized(width) as o:
                    value = sums[r, v, o]
                    if self._after is None:
                        value = value * self._softmax.factor[self._at(head, r)]
                    place = output.place(row + r, (panel * VECTORS + v) * lanes + o)
                    T.buffer_store(output.buffer, value, [place])
