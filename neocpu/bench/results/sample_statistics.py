"""The statistics of a benchmark's samples, with their certainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rounds: TypeAlias = tuple[tuple[float, ...], ...]  # seconds of every run, by round

BOOTSTRAP_SAMPLES: Final = 2000
CONFIDENCE: Final = 0.95
NOISY_SPREAD: Final = 0.05  # spread between rounds above which small differences mean nothing
ENOUGH_ROUNDS: Final = 6  # for a decision; fewer may all favour one by chance


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians with its confidence interval."""

    value: float  # median of one contender over median of the other
    low: float  # ends of the `CONFIDENCE` interval
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval leaves no doubt about which of the two is smaller."""
        return not self.low <= 1.0 <= self.high


def percentile(rounds: Rounds, percent: float) -> float:
    return float(np.percentile(np.array([seconds for one in rounds for seconds in one]), percent))


def median(rounds: Rounds) -> float:
    return percentile(rounds, 50)


def spread(rounds: Rounds) -> float:
    """Return how far the middle half of the rounds' medians lie apart, relative to their median.

    Drift between rounds, not noise within, makes two measurements of one thing differ.
    """
    medians = np.array([np.median(seconds) for seconds in rounds])
    low, middle, high = np.percentile(medians, [25, 50, 75])
    return float((high - low) / middle)


def ratio_of_medians(
    numerator: Rounds, denominator: Rounds, seed: int = 0, *, paired: bool = True
) -> Ratio:
    """Compare the seconds per round of two contenders, which have equally many if paired.

    The interval is a bootstrap of whole rounds, as runs within one are not independent; paired
    contenders get the same rounds, because what slows a round down slows both down.
    """
    rng = np.random.default_rng(seed)
    drawn = _draw(rng, len(numerator))
    if paired:
        assert len(numerator) == len(denominator)
        others = drawn
    else:
        others = _draw(rng, len(denominator))
    ratios = _medians(numerator, drawn) / _medians(denominator, others)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(ratios, [tail, 100 - tail])
    value = median(numerator) / median(denominator)
    # With few rounds the quantiles of the draws can miss the very value they are drawn around.
    return Ratio(value, min(float(low), value), max(float(high), value))


def _draw(rng: np.random.Generator, rounds: int) -> NDArray[np.int64]:
    """Return the bootstrap samples, one per row: numbers of rounds, drawn with replacement."""
    return rng.integers(0, rounds, (BOOTSTRAP_SAMPLES, rounds))


def _medians(rounds: Rounds, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Median of each draw of rounds; every round holds equally many runs."""
    table = np.array(rounds)
    medians: NDArray[np.float64] = np.median(table[drawn].reshape(len(drawn), -1), axis=1)
    return medians
