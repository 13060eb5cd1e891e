"""The register tile of a product: some rows of one factor by a panel of the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, with_memory
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, broadcast_limit, step_cycles
from neocpu.schedules.products.panel import VECTORS, Matrix
from neocpu.schedules.tir.bfloat16 import add_dot
from neocpu.schedules.tir.builder import for_vectors, known, less, part_start, span, splat
from neocpu.schedules.tir.llvm_text import opaque_number
from neocpu.schedules.tir.vector_math import LOG2_E, power_of_two
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import least_of, typical_of, varies

# The cycles of storing a vector of sums.
STORE_CYCLES: Final = 2


@dataclass(frozen=True, slots=True)
class RowTile:
    """A number of rows that are multiplied together.

    - `height`: the rows of the tile; the last tile moves back where it would overhang. A matrix of
      any number of rows may have fewer; its last row then stands for those that are missing.
    - `unit`: the unit for float32, or for pairs of bfloat16.
    """

    most_columns: ClassVar[int] = 512
    """The most scores of a row that are computed before their softmax: a tile's should fit L1."""
    rows: int
    height: int
    unit: DotUnit

    @property
    def lanes(self) -> int:
        """The number of lanes in a vector of sums."""
        return self.unit.lanes

    @property
    def count(self) -> int:
        """The number of tiles of the matrix."""
        return ceil_div(self.rows, self.height)

    @property
    def may_lack_rows(self) -> bool:
        """Whether there may be fewer rows than a tile has."""
        return varies(self.rows) and least_of(self.rows) < self.height

    def place(self, first: Any, row: Any) -> Any:
        """Return the row of the matrix that is the tile's ``row``, from its ``first`` on."""
        if not self.may_lack_rows:
            return first + row
        # A node, because constants would be compared now, and hold for this size alone.
        own = tirx.const(row, "int32") if isinstance(row, int) else row
        return first + tirx.Min(own, less(self.rows, 1))

    def copy_rows(self, copied: Any, source: Matrix, depth: int, first: Any) -> None:
        """Emit a copy of the tile's rows of a matrix; some may be missing."""

        def copy(column: Any, width: int) -> None:
            value = source.vector(self.place(first, row), column, width)
            T.buffer_store(copied, value, [row, span(column, width)])

        with T.serial(self.height) as row:
            for_vectors(depth, self.lanes, copy)

    def allocated_rows(self, row_bytes: int) -> int:
        """Return the rows to allocate for buffers of `height` rows."""
        return self.height

    def cycles(self, steps: int, columns: int, panel_bytes: int, target: CpuTarget) -> float:
        """Return the cycles of a tile's products with all panels, and of storing the sums."""

        def panel(vectors: int) -> float:
            step = step_cycles(vectors, self.height, self.unit, target, panel_bytes)
            products = ceil_div(steps, self.unit.group) * step
            return products + vectors * self.height * STORE_CYCLES + TILE_CYCLES

        full, rest = divmod(columns, VECTORS * self.lanes)
        return full * panel(VECTORS) + (panel(ceil_div(rest, self.lanes)) if rest else 0.0)

    def first(self, number: Any) -> Any:
        """Return the first row of the tile ``number``; the last tile may overlap the one before."""
        first = number * self.height
        if self.rows % self.height == 0 and not varies(self.rows):
            return first
        last = T.min(first, less(self.rows, self.height))
        return T.max(last, 0) if self.may_lack_rows else last

    def each(self, part: Any, parts: int) -> Iterator[Any]:
        """Emit the body for a part of the tiles, with the first row of each."""
        count: Any = self.count
        if varies(self.rows):
            count = T.Bind((known(self.rows) + (self.height - 1)) // self.height)
        first = T.Bind(part_start(part, count, parts))
        with T.serial(T.Bind(part_start(part + 1, count, parts) - first)) as number:
            yield T.Bind(self.first(first + number))

    def multiply(
        self,
        steps: Any,
        vectors: int,
        factor: Callable[[int, Any], Any],
        panel: Callable[[Any, int], Any],
    ) -> Any:
        """Emit the products of all rows and the vectors of a panel::

            sums[height, vectors] = 0                                   # registers
            for k: for row, v: sums[row, v] += broadcast(factor(row, k)) * panel(k, v)

        ``factor`` returns a scalar, for bfloat16 a pair as int32, and ``panel`` a vector of them.
        Sums are ``(height, vectors, lanes)``.
        """
        shape, every = (self.height, vectors, self.lanes), span(0, self.lanes)
        sums = T.alloc_buffer(shape, "float32", scope="local", layout=None)
        for row, v in product(range(self.height), range(vectors)):
            zero = splat(tirx.const(0, "float32"), self.lanes)
            T.buffer_store(sums, zero, [row, v, every])
        with T.serial(opaque_number(ceil_div(steps, self.unit.group))) as k:
            loaded = [T.Bind(panel(k, v)) for v in range(vectors)]
            for row in range(self.height):
                own = T.Bind(splat(factor(row, k), self.lanes))
                for v, vector in enumerate(loaded):
                    total = sums[row, v, every]
                    pairs = self.unit.group > 1
                    total = add_dot(total, vector, own) if pairs else total + own * vector
                    T.buffer_store(sums, total, [row, v, every])
        return sums


def choose_tile(
    rows: int, panel_bytes: int, target: CpuTarget, numerics: Numerics = FLOAT32
) -> RowTile:
    """Return the tile of the fewest cycles for all rows; each reads all panels again."""
    unit, typical = target.dot_unit(numerics), typical_of(rows)
    panel_bytes = typical_of(panel_bytes)
    limit = max(1, min(typical, broadcast_limit(VECTORS, unit)))

    def cycles(height: int) -> float:
        step = step_cycles(VECTORS, height, unit, target, panel_bytes)
        return ceil_div(typical, height) * step

    height = min(range(limit, 0, -1), key=cycles)
    return RowTile(rows, height, unit)


def busiest_seconds(tasks: int, each: float, moved: int, target: CpuTarget, threads: int) -> float:
    """Return the time of equal tasks of ``each`` cycles that move ``moved`` bytes, in seconds."""
    busy = ceil_div(tasks, threads) * each / target.frequency
    far = moved / threads if moved > target.l2 * threads else 0.0
    return fork_seconds(threads, target) + with_memory(busy, far, 0.0, target)


def parts_of(matrices: int, tiles: int, threads: int) -> int:
    """Return the parts of each matrix's tiles that leave the busiest thread the least work; each
    packs the panels, which takes about as long as a tile.
    """
    matrices, tiles = typical_of(matrices), typical_of(tiles)

    def busiest(parts: int) -> int:
        return ceil_div(matrices * parts, threads) * (ceil_div(tiles, parts) + 1)

    return min(range(1, min(tiles, 4 * threads) + 1), key=busiest)


_LOWEST = -math.inf


class RowSoftmax:
    """An emitter that replaces scores by powers, block after block of a row.

    A power is e to the score less the largest score so far. If all scores are -inf, zero is
    subtracted instead: the powers are then zeros, while those of later blocks need not be.

    - `scores`: the scores ``(height, columns)``, replaced by the powers. Beyond the last column, up
      to whole vectors, they must be -inf.
    - `rescale`: the factors ``(height,)`` of the sums of earlier blocks' powers.
    - `factor`: the reciprocals ``(height,)`` of sums of powers, after `finish`: positive or NaN.
    """

    def __init__(self, tile: RowTile, columns: int) -> None:
        self._height, self._lanes = tile.height, tile.lanes
        padded = ceil_div(columns, self._lanes) * self._lanes
        shape = (tile.allocated_rows(4 * padded), padded)
        self.scores = T.alloc_buffer(shape, "float32", layout=None)
        self.rescale, self.factor, self._largest, self._sum = (
            T.alloc_buffer((self._height,), "float32", scope="local", layout=None) for _ in range(4)
        )

    def begin(self) -> None:
        """Emit the code before the first block."""
        with T.serial(self._height) as r:
            T.buffer_store(self._largest, tirx.const(_LOWEST, "float32"), [r])
            T.buffer_store(self._sum, tirx.const(0, "float32"), [r])

    def emit(self, columns: Any, is_whole: bool) -> None:
        """Emit the powers of a block; ``is_whole`` means that it is the only one. `columns` may be
        an expression.
        """
        vectors, lanes, scores = ceil_div(columns, self._lanes), self._lanes, self.scores
        with T.serial(self._height) as r:
            best = self._reduced(
                vectors, _LOWEST, _larger, lambda i: lambda o: scores[r, i * lanes + o]
            )
            largest = T.Bind(best if is_whole else _larger(self._largest[r], best))
            lowest = tirx.const(_LOWEST, "float32")
            zero = tirx.const(0, "float32")
            base = T.Bind(T.Select(largest == lowest, zero, largest))

            def power(i: Any) -> Callable[[Any], Any]:
                def emit(o: Any) -> Any:
                    at = [r, i * lanes + o]
                    T.buffer_store(scores, self._power(scores[tuple(at)] - base), at)
                    return scores[tuple(at)]

                return emit

            total = self._reduced(vectors, 0.0, lambda one, other: one + other, power)
            if not is_whole:
                rescale = T.Bind(self._power(self._largest[r] - base))
                T.buffer_store(self.rescale, rescale, [r])
                T.buffer_store(self._largest, largest, [r])
                total = self._sum[r] * rescale + total
            T.buffer_store(self._sum, total, [r])

    def finish(self) -> None:
        """Emit the factors."""
        with T.serial(self._height) as r:
            T.buffer_store(self.factor, tirx.const(1, "float32") / self._sum[r], [r])

    def _power(self, distance: Any) -> Any:
        return power_of_two(distance * tirx.const(LOG2_E, "float32"))

    def _reduced(
        self,
        vectors: Any,
        neutral: float,
        join: Callable[[Any, Any], Any],
        element: Callable[[Any], Callable[[Any], Any]],
    ) -> Any:
        """Emit the reduction of vectors to one number: lane by lane, then half by half."""
        lanes = self._lanes
        partial = T.alloc_buffer((lanes,), "float32", scope="local", layout=None)
        T.buffer_store(partial, splat(tirx.const(neutral, "float32"), lanes), [span(0, lanes)])
        with T.serial(vectors) as i, T.vectorized(lanes) as o:
            T.buffer_store(partial, join(partial[o], element(i)(o)), [o])
        half = lanes // 2
        while half:
            joined = join(partial[span(0, half)], partial[span(half, half)])
            T.buffer_store(partial, joined, [span(0, half)])
            half //= 2
        return T.Bind(partial[0])


def _larger(one: Any, other: Any) -> Any:
    """Return the larger value in one instruction; NaN may be lost here, because sums show it."""
    return T.Select(one > other, one, other)
