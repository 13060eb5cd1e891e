"""Random choices that hypothesis can make: whole numbers, and all else computed from them."""

from __future__ import annotations

import itertools
from collections.abc import MutableSequence, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Choices:
    """Choices of one case, by a plain Random or hypothesis's.

    hypothesis draws whole numbers about evenly and shrinks them to the smallest; its floats favour
    the extremes, and its weighted choices ignore the weights.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def randint(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, both included."""
        return low if low == high else self._rng.randint(low, high)

    def randrange(self, low: int, end: int | None = None) -> int:
        """Return a whole number as ``range`` has them."""
        return self.randint(0, low - 1) if end is None else self.randint(low, end - 1)

    def chance(self, probability: float) -> bool:
        """Return True with this probability; shrinks to False."""
        return self.randint(1, 1000) > 1000 * (1 - probability)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of ``items``; shrinks to the first."""
        return items[self.randint(0, len(items) - 1)]

    def weighted(self, items: Sequence[T], weights: Sequence[int]) -> T:
        """Return one of ``items``, in proportion to ``weights``; shrinks to the first."""
        sums = list(itertools.accumulate(weights))
        drawn = self.randint(0, sums[-1] - 1)
        return items[next(index for index, total in enumerate(sums) if drawn < total)]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Put ``items`` into another order, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = last - self.randint(0, last)
            items[last], items[other] = items[other], items[last]

    def seed(self) -> int:
        """Return the seed of a generator of data."""
        return self.randint(0, 2**32 - 1)
