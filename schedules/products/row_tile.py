"""The register tile of a product: some rows of one factor by a panel of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, with_memory
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, broadcast_limit, step_cycles
from neocpu.schedules.products.panel import VECTORS
from neocpu.schedules.tir.bfloat16 import add_dot
from neocpu.schedules.tir.builder import part_start, span, splat
from neocpu.schedules.tir.llvm_text import opaque_number
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.target import CpuTarget

# The cycles of storing a vector of sums.
STORE_CYCLES: Final = 2


@dataclass(frozen=True, slots=True)
class RowTile:
    """A number of rows that are multiplied together.

    Attributes
    ----------
    rows : int
        The number of rows of the matrix.
    height : int
        The number of rows of the tile. The last tile moves back if it would overhang, and computes
        rows again.
    unit : DotUnit
        The unit for float32, or for pairs of bfloat16.
    """

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

    def cycles(self, steps: int, columns: int, panel_bytes: int, target: CpuTarget) -> float:
        """Return the cycles of a tile's products with all panels, and of storing the sums."""

        def panel(vectors: int) -> float:
            step = step_cycles(vectors, self.height, self.unit, target, panel_bytes)
            products = ceil_div(steps, self.unit.group) * step
            return products + vectors * self.height * STORE_CYCLES + TILE_CYCLES

        full, rest = divmod(columns, VECTORS * self.lanes)
        return full * panel(VECTORS) + (panel(ceil_div(rest, self.lanes)) if rest else 0.0)

    def first(self, number: Any) -> Any:
        """Return the first row of a tile."""
        first = number * self.height
        return first if self.rows % self.height == 0 else T.min(first, self.rows - self.height)

    def each(self, part: Any, parts: int) -> Iterator[Any]:
        """Emit the body for a part of the tiles, with the first row of each."""
        first = T.Bind(part_start(part, self.count, parts))
        with T.serial(T.Bind(part_start(part + 1, self.count, parts) - first)) as number:
            yield T.Bind(self.first(first + number))

    def multiply(
        self,
        steps: int,
        vectors: int,
        factor: Callable[[int, Any], Any],
        panel: Callable[[Any, int], Any],
    ) -> Any:
        """Emit the products of all rows and the vectors of a panel.

        ::

            sums[height, vectors] = 0                                   # registers
            for k: for row, v: sums[row, v] += broadcast(factor(row, k)) * panel(k, v)

        Of bfloat16 a step has two products, and so have what `factor` and `panel` return.

        Parameters
        ----------
        factor : callable
            ``factor(row, k)`` returns a scalar; for bfloat16 a pair, as int32.
        panel : callable
            ``panel(k, v)`` returns a vector of them.

        Returns
        -------
        buffer
            The sums, ``(height, vectors, lanes)``.
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
                    total = self._added(sums[row, v, every], own, vector)
                    T.buffer_store(sums, total, [row, v, every])
        return sums

    def _added(self, sums: Any, factors: Any, vector: Any) -> Any:
        if self.unit.group == 1:
            return sums + factors * vector
        return add_dot(sums, vector, factors)


def choose_tile(
    rows: int, panel_bytes: int, target: CpuTarget, numerics: Numerics = FLOAT32
) -> RowTile:
    """Return the tile that takes the fewest cycles for all rows.

    Parameters
    ----------
    panel_bytes : int
        The bytes of all panels, which each tile reads again.
    """
    unit = target.dot_unit(numerics)
    limit = max(1, min(rows, broadcast_limit(VECTORS, unit)))

    def cycles(height: int) -> float:
        step = step_cycles(VECTORS, height, unit, target, panel_bytes)
        return ceil_div(rows, height) * step

    height = min(range(limit, 0, -1), key=cycles)
    return RowTile(rows, height, unit)


def busiest_seconds(tasks: int, each: float, moved: int, target: CpuTarget, threads: int) -> float:
    """Return the time of equal tasks of ``each`` cycles that move ``moved`` bytes, in seconds."""
    busy = ceil_div(tasks, threads) * each / target.frequency
    far = moved / threads if moved > target.l2 * threads else 0.0
    return fork_seconds(threads, target) + with_memory(busy, far, 0.0, target)


def parts_of(matrices: int, tiles: int, threads: int) -> int:
    """Return the parts of each matrix's tiles that leave the busiest thread the least work.

    Each part is a task that packs its matrix's panels, which takes about as long as a tile.
    """

    def busiest(parts: int) -> int:
        return ceil_div(matrices * parts, threads) * (ceil_div(tiles, parts) + 1)

    return min(range(1, min(tiles, 4 * threads) + 1), key=busiest)
