"""The softmax of a register tile's rows of scores, which lie in L1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.products.row_tile import RowTile
from neocpu.schedules.tir.builder import span, splat
from neocpu.schedules.tir.vector_math import LOG2_E, power_of_two
from neocpu.schedules.vocabulary.layout import ceil_div

_LOWEST = -math.inf


class RowSoftmax:
    """An emitter that replaces scores by powers, block after block of a row.

    A power is e to the score less the largest score so far. If all scores are -inf, zero is
    subtracted instead: the powers are then zeros, while those of later blocks need not be.

    - `scores`: the scores ``(height, columns)``, replaced by the powers. Beyond the last column, up
      to whole vectors, they must be -inf.
    - `rescale`: the factors ``(height,)`` by which sums of earlier blocks' powers must be
      multiplied.
    - `factor`: the reciprocals ``(height,)`` of the sums of a row's powers, after `finish`:
      positive or NaN.
    """

    def __init__(self, tile: RowTile, columns: int) -> None:
        self._height, self._lanes = tile.height, tile.lanes
        padded = ceil_div(columns, self._lanes) * self._lanes
        self.scores = T.alloc_buffer((self._height, padded), "float32", layout=None)
        self.rescale, self.factor, self._largest, self._sum = (
            T.alloc_buffer((self._height,), "float32", scope="local", layout=None) for _ in range(4)
        )

    def begin(self) -> None:
        """Emit the code before the first block."""
        with T.serial(self._height) as r:
            T.buffer_store(self._largest, tirx.const(_LOWEST, "float32"), [r])
            T.buffer_store(self._sum, tirx.const(0, "float32"), [r])

    def emit(self, columns: int, is_whole: bool) -> None:
        """Emit the powers of a block; ``is_whole`` means that it is the only one."""
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
        vectors: int,
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
