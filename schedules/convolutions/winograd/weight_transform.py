"""8-bit weights that each task transforms itself: a filter takes 9 bytes instead of 72.

In the layout that the products read (output channels, for pairs of input channels) a vector of
bytes widens to exactly the vectors that are multiplied, so the transform needs no shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd.exact_filter import FILTERS
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.tir.builder import span

_KIND = "int16"


class WeightTransform:
    """An emitter of the transform of `exact_filter.packed_taps`, within a task's frame."""

    def __init__(self, tiling: Tiling, weights: Any) -> None:
        self._tiling, self._weights = tiling, weights
        self._width = tiling.lanes * tiling.domain.group
        self._vectors = tiling.scheme.reg_oc // tiling.lanes
        # One extra point keeps the rows of a point from falling into a few sets of the caches.
        shape = (self._rows, tiling.points + 1, self._vectors * self._width)
        self._made = T.alloc_buffer(shape, _KIND, layout=None)

    @property
    def _rows(self) -> int:
        return self._tiling.part_chunks * self._tiling.chunk_steps

    def transform(self, block: Any, first: Any, count: Any) -> None:
        """Transform ``count`` pairs of input channels from ``first`` on, for a block of outputs."""
        down, across = FILTERS
        with T.serial(count) as k:
            for v in range(self._vectors):
                lanes = span(v * self._width, self._width)

                def tap(i: int, j: int, k: Any = k, lanes: Any = lanes) -> Any:
                    stored = self._weights[block, first + k, i * across.taps + j, lanes]
                    return T.Bind(stored.astype(f"{_KIND}x{self._width}"))

                taps = {place: tap(*place) for place in product(range(3), range(3))}
                columns = [down.kernel([taps[i, j] for i in range(3)]) for j in range(3)]
                for i in range(down.span):
                    row = across.kernel([column[i] for column in columns])
                    for j, value in enumerate(row):
                        point = self._tiling.point(i, j)
                        T.buffer_store(self._made, value, [k, point, lanes])

    def vector(self, point: Any, row: Any, v: int) -> Any:
        return self._made[row, point, span(v * self._width, self._width)]


@dataclass(frozen=True, slots=True)
class MadeWeights:
    """The weights that a task has transformed, from step ``first`` on."""

    made: WeightTransform
    first: Any
    block: Any
    part: Any

    def vector(self, point: Any, step: Any, v: int) -> Any:
        return self.made.vector(point, step - self.first, v)
