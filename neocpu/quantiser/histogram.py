"""The values of a tensor over calibration data, collected in one pass and little memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

HALF_BINS: Final = 2048
"""Number of bins on either side of zero: at least eight for each step of 8 bits, for a range that
has both signs."""

SMALLEST: Final = 2.0**-80
"""Magnitude below which a whole sample counts as zero, because products of its scales would leave
float32."""

MOMENTUM: Final = 0.9
"""Weight of the old value when a sample updates the moving averages of the extremes."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distribution:
    """The distribution of a tensor's values."""

    limit: float
    # Numbers of values in equal bins from ``-limit`` to ``limit``, without exact zeros.
    counts: Array
    zeros: int  # number of values that are exactly zero
    # `low`, `high`: the least and the largest value.
    low: float
    high: float
    # `average_low`, `average_high`: moving averages of the least and the largest value of each
    # sample.
    average_low: float
    average_high: float
    means: Array | None = None  # mean of each channel; None if the tensor has no second axis

    @property
    def centres(self) -> Array:
        width = self.limit / HALF_BINS
        return (np.arange(-HALF_BINS, HALF_BINS) + 0.5) * width

    @property
    def is_constant(self) -> bool:
        return self.low == self.high

    def quantile(self, share: float) -> float:
        """Return a value such that ``share`` of all values are not above it."""
        before = np.concatenate([self.counts[:HALF_BINS], [self.zeros], self.counts[HALF_BINS:]])
        total = np.cumsum(before)
        place = int(np.searchsorted(total, share * total[-1]))
        if place == HALF_BINS:
            return 0.0
        width = self.limit / HALF_BINS
        # The outer edge of its bin, on either side of zero, but within the observed extremes.
        return float(min(max((place - HALF_BINS) * width, self.low), self.high))


class Histogram:
    """A collector of a `Distribution`. Its bins double in width when a larger value comes."""

    def __init__(self) -> None:
        self._limit = 0.0
        self._counts = np.zeros(2 * HALF_BINS, np.int64)
        self._zeros = 0
        self._low, self._high = math.inf, -math.inf
        self._averages: tuple[float, float] | None = None
        self._sums: Array | None = None
        self._samples = 0

    def add(self, values: Array) -> None:
        """Add a sample's tensor, which must be finite."""
        low, high = float(values.min()), float(values.max())
        if max(-low, high) < SMALLEST:
            low = high = 0.0
        self._low, self._high = min(self._low, low), max(self._high, high)
        before = self._averages or (low, high)
        self._averages = (
            MOMENTUM * before[0] + (1 - MOMENTUM) * low,
            MOMENTUM * before[1] + (1 - MOMENTUM) * high,
        )
        if values.ndim > 1:
            axes = (0, *range(2, values.ndim))
            means = values.mean(axis=axes, dtype=np.float64)
            self._sums = means if self._sums is None else self._sums + means
        self._samples += 1
        self._grow(max(-low, high))
        some = values[values != 0] if low or high else values[:0]
        self._zeros += values.size - some.size
        if some.size:
            scaled = np.floor(some * np.float32(HALF_BINS / self._limit)).astype(np.int64)
            places = np.clip(scaled + HALF_BINS, 0, 2 * HALF_BINS - 1)
            self._counts += np.bincount(places, minlength=2 * HALF_BINS)

    def result(self) -> Distribution:
        assert self._averages is not None, "nothing was added"
        means = None if self._sums is None else self._sums / self._samples
        return Distribution(
            limit=self._limit or 1.0,
            counts=self._counts.copy(),
            zeros=self._zeros,
            low=self._low,
            high=self._high,
            average_low=self._averages[0],
            average_high=self._averages[1],
            means=means,
        )

    def _grow(self, reach: float) -> None:
        if self._limit == 0.0:
            self._limit = reach
        while self._limit < reach:
            pairs = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts[:] = 0
            self._counts[HALF_BINS // 2 : HALF_BINS // 2 + HALF_BINS] = pairs
            self._limit *= 2
