"""Weights of 8-bit integers that a task transforms itself: 9 bytes a filter are kept, and not 72.

In the layout that the products read (output channels, of pairs of input channels) a vector of bytes
widens to just what is multiplied, so that the transform needs no shuffles.
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
    """Emits it; created inside the builder's frame of a task, where it allocates what it makes.

    Parameters
    ----------
    weights : buffer
        As `exact_filter.packed_taps` packs them.
    """

    def __init__(self, tiling: Tiling, weights: Any) -> None:
        self._tiling, self._weights = tiling, weights
        self._width = tiling.lanes * tiling.domain.group
        self._vectors = tiling.scheme.reg_oc // tiling.lanes
        # One point more keeps what a point has of all rows from a few sets of the caches.
        shape = (self._rows, tiling.points + 1, self._vectors * self._width)
        self._made = T.alloc_buffer(shape, _KIND, layout=None)

    @property
    def _rows(self) -> int:
        """Pairs of input channels of a part of the sums."""
        return self._tiling.part_chunks * self._tiling.chunk_steps

    def transform(self, block: Any, first: Any, count: Any) -> None:
        """Transform ``count`` pairs of input channels, from ``first``, of a block of outputs."""
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
        """Return a vector of what was made, by its row from the first of `transform`."""
        return self._made[row, point, span(v * self._width, self._width)]


@dataclass(frozen=True, slots=True)
class MadeWeights:
    """What a task has transformed: weights of a block of outputs and a part of the sums.

    Attributes
    ----------
    first : expression
        The first step of the part.
    """

    made: WeightTransform
    first: Any
    block: Any
    part: Any

    def vector(self, point: Any, step: Any, v: int) -> Any:
        """Return a vector of weights of a point, by its step."""
        return self.made.vector(point, step - self.first, v)
