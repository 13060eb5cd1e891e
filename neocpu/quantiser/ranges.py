"""Methods that choose the range of a tensor's integers by the distribution of its values.

Values beyond a range are cut off, but a wider range has coarser steps. The method minmax cuts
nothing off; percentile and moving-average cut off rare values. The others try ranges and take the
one that changes the distribution least, by the mean squared error, by the Kullback-Leibler
divergence (as in TensorRT: Migacz, "8-bit inference with TensorRT", GTC 2017), by the same in both
directions, or by the Jensen-Shannon divergence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

HALF_BINS: Final = 2048  # bins on either side of zero: at least eight for each step of 8 bits
SMALLEST: Final = 2.0**-80  # of a sample that counts: products of smaller scales leave float32
MOMENTUM: Final = 0.9  # weight of the old value in the moving averages of the extremes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distribution:
    limit: float
    counts: Array  # in equal bins from ``-limit`` to ``limit``, without zeros
    zeros: int  # number of values that are exactly zero
    low: float  # least and largest value
    high: float
    average_low: float  # moving averages of samples' extremes
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


RATIOS: Final = np.linspace(0.15, 1.0, 69)  # ranges that are tried, as shares of the whole range

_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Range:
    """The values from ``low`` to ``high``, which include zero."""

    low: float
    high: float

    def steps(self, levels: int, *, symmetric: bool) -> tuple[float, int]:
        """Return scale and zero point of integers from 0 to ``levels``.

        Zero is represented exactly, because padding and ReLU make it. A symmetric range of both
        signs has its zero point in the middle.
        """
        if symmetric and self.low < 0:
            middle = (levels + 1) // 2
            scale = max(-self.low, self.high) / (middle - 1)
            return _scale(scale), middle
        scale = _scale((self.high - self.low) / levels)
        return scale, min(max(round(-self.low / scale), 0), levels)


def _scale(value: float) -> float:
    """Return a scale rounded to float32; 1 if there is nothing but zeros."""
    rounded = float(np.float32(value))
    return rounded if rounded > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Rounding:
    """The integers that a range is chosen for."""

    levels: int = 255  # number of steps between the least and the largest integer: 255 for 8 bits
    symmetric: bool = False  # zero in the middle of ranges of both signs
    percentile: float = 99.99  # percent of values that ``percentile`` keeps


Method: TypeAlias = Callable[[Distribution, Rounding], Range]


def minmax(seen: Distribution, rounding: Rounding) -> Range:
    return _with_zero(seen.low, seen.high)


def moving_average(seen: Distribution, rounding: Rounding) -> Range:
    """Return the mean extremes of samples, with a larger weight of later ones."""
    return _with_zero(seen.average_low, seen.average_high)


def percentile(seen: Distribution, rounding: Rounding) -> Range:
    """Return the range without outliers: each end loses half the values beyond the percentile."""
    outside = (1 - rounding.percentile / 100) / 2
    return _with_zero(seen.quantile(outside), seen.quantile(1 - outside))


def _with_zero(low: float, high: float) -> Range:
    return Range(min(low, 0.0), max(high, 0.0))


def _best(
    seen: Distribution,
    rounding: Rounding,
    measure: Callable[[Distribution, Range, Rounding], float],
) -> Range:
    """Return the range of least measure: both ends are scaled jointly first, then each alone."""
    whole = minmax(seen, rounding)
    if seen.is_constant or not seen.counts.any():
        return whole
    tried = [Range(whole.low * r, whole.high * r) for r in RATIOS]
    best = min(tried, key=lambda one: measure(seen, one, rounding))
    if whole.low < 0 < whole.high and not rounding.symmetric:
        tried = [best, *(Range(best.low, whole.high * r) for r in RATIOS)]
        best = min(tried, key=lambda one: measure(seen, one, rounding))
        tried = [best, *(Range(whole.low * r, best.high) for r in RATIOS)]
        best = min(tried, key=lambda one: measure(seen, one, rounding))
    return best


def _rounded(values: Array, tried: Range, rounding: Rounding) -> tuple[Array, float, int]:
    scale, zero = tried.steps(rounding.levels, symmetric=rounding.symmetric)
    stored = np.clip(np.rint(values / scale) + zero, 0, rounding.levels)
    return stored, scale, zero


def _squared_error(seen: Distribution, tried: Range, rounding: Rounding) -> float:
    values = seen.centres
    stored, scale, zero = _rounded(values, tried, rounding)
    # A bin's values are spread over its width, which matters if steps are as narrow.
    within = (seen.limit / HALF_BINS) ** 2 / 12
    squares = np.square((stored - zero) * scale - values)
    return float((seen.counts * np.maximum(squares, within)).sum())


def _before_and_after(seen: Distribution, tried: Range, rounding: Rounding) -> tuple[Array, Array]:
    """Return the distribution with all mass cut to the range, and its form after rounding."""
    values = seen.centres
    stored, _, _ = _rounded(values, tried, rounding)
    counts = seen.counts.astype(np.float64)
    inside = (values >= tried.low) & (values <= tried.high)
    if not inside.any():
        return np.ones(1), np.full(1, _TINY)
    first, last = np.flatnonzero(inside)[[0, -1]]
    p = counts[first : last + 1].copy()
    reached = p > 0
    levels = stored[first : last + 1].astype(np.int64)
    # The mass of each step is spread evenly over its bins that have any, without cut-off values.
    mass = np.bincount(levels, weights=p, minlength=rounding.levels + 1)
    bins = np.bincount(levels, weights=reached, minlength=rounding.levels + 1)
    q = np.where(reached, (mass / np.maximum(bins, 1))[levels], 0.0)
    p[0] += counts[:first].sum()
    p[-1] += counts[last + 1 :].sum()
    return p / max(p.sum(), _TINY), q / max(q.sum(), _TINY)


def _divergence(p: Array, q: Array) -> float:
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(q[some], _TINY))).sum())


def _one_way(seen: Distribution, tried: Range, rounding: Rounding) -> float:
    return _divergence(*_before_and_after(seen, tried, rounding))


def _both_ways(seen: Distribution, tried: Range, rounding: Rounding) -> float:
    p, q = _before_and_after(seen, tried, rounding)
    return _divergence(p, q) + _divergence(q, p)


def _from_mean(seen: Distribution, tried: Range, rounding: Rounding) -> float:
    """Return the mean divergence of both distributions from their mean: Jensen-Shannon's."""
    p, q = _before_and_after(seen, tried, rounding)
    middle = (p + q) / 2
    return (_divergence(p, middle) + _divergence(q, middle)) / 2


METHODS: Final[Mapping[str, Method]] = {
    "minmax": minmax,
    "moving-average": moving_average,
    "percentile": percentile,
    "kl": partial(_best, measure=_one_way),
    "symmetric-kl": partial(_best, measure=_both_ways),
    "js": partial(_best, measure=_from_mean),
    "mse": partial(_best, measure=_squared_error),
}
