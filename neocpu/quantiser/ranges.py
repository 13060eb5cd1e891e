"""The range of a tensor's integers, by the distribution of its values: one function a method.

Values beyond a range are cut off; a wider one has coarser steps. Minimum and maximum cut nothing
off; percentiles and moving averages cut off what is rare; the others try ranges and take the one
that changes the distribution least, by their own measure of that: its mean squared error, or the
divergence of Kullback and Leibler (as TensorRT has it: Migacz, "8-bit inference with TensorRT",
GTC 2017), the same in both directions, or Jensen's and Shannon's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from neocpu.quantiser.histogram import HALF_BINS, Array, Distribution

RATIOS: Final = np.linspace(0.15, 1.0, 69)
"""Shares of the whole range that are tried."""

_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Range:
    """The values from ``low`` to ``high``, zero among them."""

    low: float
    high: float

    def steps(self, levels: int, *, symmetric: bool) -> tuple[float, int]:
        """Return scale and zero point of integers from 0 to ``levels``.

        Zero is one of them exactly, since padding and ReLU make it. A symmetric range of both signs
        has its zero point in the middle.
        """
        if symmetric and self.low < 0:
            middle = (levels + 1) // 2
            scale = max(-self.low, self.high) / (middle - 1)
            return _scale(scale), middle
        scale = _scale((self.high - self.low) / levels)
        return scale, min(max(round(-self.low / scale), 0), levels)


def _scale(value: float) -> float:
    """Return a scale that float32 has; 1 of nothing but zeros."""
    rounded = float(np.float32(value))
    return rounded if rounded > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Rounding:
    """The integers that a range is for.

    Attributes
    ----------
    levels : int
        Steps between the least and the largest: 255 of 8 bits.
    symmetric : bool
        Whether zero is in the middle, of tensors that have both signs.
    percentile : float
        Values, in percent, that method ``percentile`` does not cut off.
    """

    levels: int = 255
    symmetric: bool = False
    percentile: float = 99.99


Method: TypeAlias = Callable[[Distribution, Rounding], Range]


def minmax(seen: Distribution, rounding: Rounding) -> Range:
    """All that was seen."""
    return _with_zero(seen.low, seen.high)


def moving_average(seen: Distribution, rounding: Rounding) -> Range:
    """The extremes of samples on average, later ones weighted more."""
    return _with_zero(seen.average_low, seen.average_high)


def percentile(seen: Distribution, rounding: Rounding) -> Range:
    """All but outliers: of each end half of what is beyond the percentile."""
    outside = (1 - rounding.percentile / 100) / 2
    return _with_zero(seen.quantile(outside), seen.quantile(1 - outside))


def mean_squared_error(seen: Distribution, rounding: Rounding) -> Range:
    """The range with the least mean squared difference."""
    return _best(seen, rounding, _squared_error)


def kullback_leibler(seen: Distribution, rounding: Rounding) -> Range:
    """The range with the least divergence of what was seen from what is left of it."""
    return _best(seen, rounding, lambda *given: _divergence(*_two(*given)))


def symmetric_kullback_leibler(seen: Distribution, rounding: Rounding) -> Range:
    """The same, both ways."""

    def measure(seen: Distribution, tried: Range, rounding: Rounding) -> float:
        p, q = _two(seen, tried, rounding)
        return _divergence(p, q) + _divergence(q, p)

    return _best(seen, rounding, measure)


def jensen_shannon(seen: Distribution, rounding: Rounding) -> Range:
    """The same, of both from their mean."""

    def measure(seen: Distribution, tried: Range, rounding: Rounding) -> float:
        p, q = _two(seen, tried, rounding)
        middle = (p + q) / 2
        return (_divergence(p, middle) + _divergence(q, middle)) / 2

    return _best(seen, rounding, measure)


METHODS: Final[Mapping[str, Method]] = {
    "minmax": minmax,
    "moving-average": moving_average,
    "percentile": percentile,
    "kl": kullback_leibler,
    "symmetric-kl": symmetric_kullback_leibler,
    "js": jensen_shannon,
    "mse": mean_squared_error,
}


def _with_zero(low: float, high: float) -> Range:
    return Range(min(low, 0.0), max(high, 0.0))


def _best(
    seen: Distribution,
    rounding: Rounding,
    measure: Callable[[Distribution, Range, Rounding], float],
) -> Range:
    """Return the range of least measure: of both ends together first, then of each by itself."""
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
    """Return the integers that values become, and their scale and zero point."""
    scale, zero = tried.steps(rounding.levels, symmetric=rounding.symmetric)
    stored = np.clip(np.rint(values / scale) + zero, 0, rounding.levels)
    return stored, scale, zero


def _squared_error(seen: Distribution, tried: Range, rounding: Rounding) -> float:
    values = seen.centres
    stored, scale, zero = _rounded(values, tried, rounding)
    # A bin's values are spread over its width, which matters where steps are as fine.
    within = (seen.limit / HALF_BINS) ** 2 / 12
    squares = np.square((stored - zero) * scale - values)
    return float((seen.counts * np.maximum(squares, within)).sum())


def _two(seen: Distribution, tried: Range, rounding: Rounding) -> tuple[Array, Array]:
    """Return the distribution with what is beyond the range at its ends, and what steps leave."""
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
    # Each step's mass lies evenly over those bins of it that hold any: the cut-off is not in it.
    mass = np.bincount(levels, weights=p, minlength=rounding.levels + 1)
    bins = np.bincount(levels, weights=reached, minlength=rounding.levels + 1)
    q = np.where(reached, (mass / np.maximum(bins, 1))[levels], 0.0)
    p[0] += counts[:first].sum()
    p[-1] += counts[last + 1 :].sum()
    return p / max(p.sum(), _TINY), q / max(q.sum(), _TINY)


def _divergence(p: Array, q: Array) -> float:
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(q[some], _TINY))).sum())
