"""The emission of one task of attention, whose products are in vectors of registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.products.panel import (
    VECTORS,
    Matrix,
    allocate,
    allocate_pairs,
    each_panel,
    matrix_at,
    pack,
    reader,
)
from neocpu.schedules.products.row_tile import RowSoftmax, RowTile
from neocpu.schedules.products.workloads import AttentionWorkload
from neocpu.schedules.tir.bfloat16 import BITS, rounded_bits
from neocpu.schedules.tir.builder import for_vectors, known, span, splat
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.traced_sizes import typical_of, varies


class Task:
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
        # Keys, of which there are fewer than scores, are scaled before sums could overflow.
        keys = matrix_at(k, w.k, index).transposed()
        self._pack(keys, matrix_at(v, w.v, index))
        self._block = self._columns_of_block()
        self._in_blocks = varies(w.keys) or w.keys > self._block
        self._softmax = RowSoftmax(
            tile, self._block if varies(w.keys) else min(self._block, w.keys)
        )
        self._allocate()
        if self._in_blocks:
            shape = (tile.height, ceil_div(w.width, self._lanes), self._lanes)
            self._sums = T.alloc_buffer(shape, "float32", layout=None)

    def _columns_of_block(self) -> int:
        """Return the keys of a block: any number of them is processed in blocks, of not too few."""
        keys, panel, most = self._workload.keys, VECTORS * self._lanes, self._tile.most_columns
        typical = max(typical_of(keys), most // 2) if varies(keys) else keys
        return ceil_div(ceil_div(typical, ceil_div(typical, most)), panel) * panel

    def _pack(self, keys: Matrix, values: Matrix) -> None:
        """Pack the transposed keys, scaled, and the values into panels."""
        w, lanes = self._workload, self._lanes
        self._group = self._tile.unit.group
        panels = allocate if self._group == 1 else allocate_pairs
        self._keys = panels(w.depth, w.keys, lanes)
        pack([self._keys], keys, w.depth, w.keys, lanes, w.scale)
        self._values = panels(w.keys, w.width, lanes)
        pack([self._values], values, w.keys, w.width, lanes)

    def _allocate(self) -> None:
        """Allocate the factors of a tile's products, where they are rounded."""
        if self._group > 1:
            even = ceil_div(self._workload.depth, self._group) * self._group
            self._rounded_queries = T.alloc_buffer((self._tile.height, even), BITS, layout=None)
            powers = self._softmax.scores.shape
            self._rounded_powers = T.alloc_buffer(powers, BITS, layout=None)
        elif self._tile.may_lack_rows:
            shape = (self._tile.height, self._workload.depth)
            self._copied_queries = T.alloc_buffer(shape, "float32", layout=None)

    def products(self) -> AbstractContextManager[None]:
        """Return the context of all products of the task."""
        return nullcontext()

    def emit_tile(self, row: Any) -> None:
        """Emit the register tile of the queries from ``row`` on."""
        w = self._workload
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
        self._emit_blocks(row)
        self._softmax.finish()
        for panel, widths in each_panel(w.width, self._lanes):
            self._store(row, panel, widths, self._sums, panel * VECTORS)

    def _emit_blocks(self, row: Any) -> None:
        keys, size = self._workload.keys, self._block
        if varies(keys):
            count = known(keys)
            with T.serial((count + (size - 1)) // size) as block:
                first = T.Bind(block * size)
                self._emit_block(row, first, T.Bind(T.min(count - first, size)))
            return
        full, rest = divmod(keys, size)
        with T.serial(full) as block:
            self._emit_block(row, block * size, size)
        if rest:
            self._emit_block(row, full * size, rest)

    def _emit_block(self, row: Any, first: Any, keys: Any) -> None:
        self._emit_powers(row, first, keys)
        for panel, widths in each_panel(self._workload.width, self._lanes):
            sums = self._weighted_values(panel, len(widths), first, keys)
            for r in self._rows():
                for v in range(len(widths)):
                    with T.vectorized(self._lanes) as o:
                        at = (r, panel * VECTORS + v, o)
                        before = self._sums[at] * self._softmax.rescale[r]
                        T.buffer_store(self._sums, before + sums[r, v, o], list(at))

    def _emit_powers(self, row: Any, first: Any, keys: Any) -> None:
        """Emit the scores of a tile and a block of keys, and their powers for the softmax."""
        self._emit_scores(row, first, keys)
        whole = self._whole(keys)
        self._softmax.emit(whole, is_whole=not self._in_blocks)
        self._round_powers(whole)

    def _whole(self, keys: Any) -> Any:
        """Return the columns of a block's scores: whole panels for a number that varies."""
        panel = VECTORS * self._lanes
        return keys if isinstance(keys, int) else (keys + (panel - 1)) // panel * panel

    def _finish_scores(self, row: Any, first: Any, keys: Any) -> None:
        """Emit the addition of biases to scores, and exclude those of the last panel after the
        last key.
        """
        scores, lanes, whole = self._softmax.scores, self._lanes, self._whole(keys)
        with T.serial(self._tile.height) as r:
            if self._biases:
                with T.serial(keys // lanes) as i:
                    self._add_biases(row, r, first, i * lanes, lanes)
                with T.serial(keys % lanes) as i:
                    self._add_biases(row, r, first, keys // lanes * lanes + i, 1)
            for v in range(VECTORS):
                start = T.Bind(whole + (v - VECTORS) * lanes)
                with T.vectorized(lanes) as o:
                    lowest = tirx.const(-math.inf, "float32")
                    score = T.Select(start + o < keys, scores[r, start + o], lowest)
                    T.buffer_store(scores, score, [r, start + o])

    def _add_biases(self, row: Any, r: Any, first: Any, column: Any, width: int) -> None:
        with T.vectorized(width) as o:
            score = self._softmax.scores[r, column + o]
            for bias in self._biases:
                score = score + bias.element(self._tile.place(row, r), first + column + o)
            T.buffer_store(self._softmax.scores, score, [r, column + o])

    def _emit_scores(self, row: Any, first: Any, keys: Any) -> None:
        w, lanes, scores = self._workload, self._lanes, self._softmax.scores
        before = first // (VECTORS * lanes)
        queries = self._q.rows_from(row)
        if self._group > 1:
            queries = _pairs(self._rounded_queries)
        elif self._tile.may_lack_rows:
            copied = self._copied_queries
            queries = lambda r, k: copied[r, k]  # noqa: E731
        is_counted = isinstance(keys, int)
        for panel, widths in each_panel(self._whole(keys), lanes):
            keys_read = reader(self._keys, before + panel, lanes)
            sums = self._tile.multiply(w.depth, len(widths), queries, keys_read)
            for r, (v, width) in product(range(self._tile.height), enumerate(widths)):
                column = panel * VECTORS * lanes + v * lanes
                with T.vectorized(width) as o:
                    score = sums[r, v, o]
                    for bias in self._biases if is_counted else ():
                        score = score + bias.element(self._tile.place(row, r), first + column + o)
                    T.buffer_store(scores, score, [r, column + o])
                if width < lanes:
                    lowest = splat(tirx.const(-math.inf, "float32"), lanes - width)
                    T.buffer_store(scores, lowest, [r, span(column + width, lanes - width)])
        if not is_counted:
            self._finish_scores(row, first, keys)

    def _round_powers(self, keys: Any) -> None:
        if self._group == 1:
            return
        with T.serial(self._tile.height) as r, T.serial(ceil_div(keys, self._lanes)) as i:
            vector = span(i * self._lanes, self._lanes)
            bits = rounded_bits(self._softmax.scores[r, vector], self._lanes)
            T.buffer_store(self._rounded_powers, bits, [r, vector])

    def _round_queries(self, row: Any) -> None:
        """Emit the queries of a tile in bfloat16, followed by a zero if the depth is odd. Queries
        of float32 are copied where some may be missing.
        """
        depth = self._workload.depth
        if self._group == 1:
            if self._tile.may_lack_rows:
                self._tile.copy_rows(self._copied_queries, self._q, depth, row)
            return
        rounded = self._rounded_queries

        def copy(column: Any, width: int) -> None:
            own = self._tile.place(row, r)
            bits = rounded_bits(self._q.vector(own, column, width), width)
            T.buffer_store(rounded, bits, [r, span(column, width)])

        with T.serial(self._tile.height) as r:
            for_vectors(depth, self._lanes, copy)
            if depth % self._group:
                T.buffer_store(rounded, tirx.const(0, BITS), [r, depth])

    def _weighted_values(self, panel: Any, vectors: int, first: Any, keys: Any) -> Any:
        scores = self._softmax.scores
        values = reader(self._values, panel, self._lanes, first // self._group)
        powers = _pairs(self._rounded_powers) if self._group > 1 else lambda r, k: scores[r, k]
        return self._tile.multiply(keys, vectors, powers, values)

    def _rows(self) -> Iterator[Any]:
        """Emit the body for each row of a tile, whose sums are in registers."""
        yield from range(self._tile.height)

    def _store(self, row: Any, panel: Any, widths: Sequence[int], sums: Any, first: Any) -> None:
        """Store the vectors of a panel, which are those of ``sums`` from ``first`` on."""
        for r in self._rows():
            for v, width in enumerate(widths):
                with T.vectorized(width) as o:
                    column = (panel * VECTORS + v) * self._lanes + o
                    value = sums[r, first + v, o] * self._softmax.factor[r]
                    if self._workload.zeros:
                        # The reciprocal of an empty sum is infinite.
                        is_number = self._softmax.factor[r] < tirx.const(math.inf, "float32")
                        value = T.Select(is_number, value, tirx.const(0, "float32"))
                    place = self._output.place(self._tile.place(row, r), column)
                    T.buffer_store(self._output.buffer, value, [place])


def _pairs(rows: Any) -> Callable[[int, Any], Any]:
    """Return ``read(row, k)``, which reads pair ``k`` of a row of bfloat16 as int32."""
    return lambda row, k: tirx.reinterpret("int32", rows[row, span(2 * k, 2)])
