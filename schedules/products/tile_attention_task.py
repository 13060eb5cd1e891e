"""The emission of one task of attention, whose products are in tile registers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.products.attention_task import Task
from neocpu.schedules.products.panel import PAIR, VECTORS, Matrix, each_panel
from neocpu.schedules.products.tile_rows import Panel, TileRows
from neocpu.schedules.tir.builder import for_vectors, span, splat
from neocpu.schedules.vocabulary.layout import ceil_div


class TileTask(Task):
    """A `Task` whose sums go from tile registers to memory, where loops of vectors read them."""

    _tile: TileRows

    def _pack(self, keys: Matrix, values: Matrix) -> None:
        w, tile = self._workload, self._tile
        self._keys = tile.pack(keys, w.depth, w.keys, w.scale)
        self._values = tile.pack(values, w.keys, w.width, 1.0)

    def _allocate(self) -> None:
        tile = self._tile
        self._rounded_queries = tile.allocate_rows(self._workload.depth)
        self._rounded_powers = tile.allocate_rows(int(self._softmax.scores.shape[1]))
        self._weighted = tile.allocate_sums()

    def products(self) -> AbstractContextManager[None]:
        return self._tile.configured()

    def _rows(self) -> Iterator[Any]:
        with T.serial(self._tile.height) as row:
            yield row

    def _round_queries(self, row: Any) -> None:
        depth = self._workload.depth
        self._tile.put(
            self._rounded_queries,
            depth,
            lambda r, column, width: self._q.vector(self._tile.place(row, r), column, width),
        )

    def _emit_scores(self, row: Any, first: Any, keys: Any) -> None:
        scores, lanes = self._softmax.scores, self._lanes
        before = first // (VECTORS * lanes)
        for panel, widths in each_panel(self._whole(keys), lanes):
            columns = [(panel * VECTORS + v) * lanes for v in range(len(widths))]

            def place(r: int, v: int, columns: list[Any] = columns) -> Any:
                return scores[r, columns[v]]

            self._tile.multiply_into(
                place,
                4 * int(scores.shape[1]),
                self._workload.depth,
                len(widths),
                self._rounded_queries,
                Panel(self._keys, before + panel),
            )
        if not isinstance(keys, int):
            self._finish_scores(row, first, keys)
            return
        tail = keys % lanes
        if not (self._biases or tail):
            return
        for r in self._rows():
            self._add_all_biases(row, r, first, keys)
            if tail:
                lowest = splat(tirx.const(-math.inf, "float32"), lanes - tail)
                T.buffer_store(scores, lowest, [r, span(keys, lanes - tail)])

    def _add_all_biases(self, row: Any, r: Any, first: Any, keys: int) -> None:
        if self._biases:
            for_vectors(keys, self._lanes, partial(self._add_biases, row, r, first))

    def _round_powers(self, keys: Any) -> None:
        scores, width = self._softmax.scores, keys
        if isinstance(keys, int):
            width = ceil_div(keys, self._lanes) * self._lanes
        self._tile.put(
            self._rounded_powers,
            width,
            lambda r, column, lanes: scores[r, span(column, lanes)],
        )

    def _weighted_values(self, panel: Any, vectors: int, first: Any, keys: Any) -> Any:
        values = Panel(self._values, panel, first // PAIR)
        steps = self._whole(keys)
        self._tile.multiply_sums(self._weighted, steps, vectors, self._rounded_powers, values)
        return self._weighted
