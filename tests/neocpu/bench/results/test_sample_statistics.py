"""Statistics against numpy and against cases with known answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.bench.results.sample_statistics import median, percentile, ratio_of_medians, spread

SECONDS = st.lists(
    st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=3).map(tuple), min_size=2, max_size=6
).map(tuple)


def _rounds(medians, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(tuple(m * (1 + noise * rng.standard_normal(9))) for m in medians)


@given(SECONDS)
def test_percentiles_are_over_all_runs(rounds):
    flat = [s for one in rounds for s in one]
    assert median(rounds) == pytest.approx(np.median(flat))
    assert percentile(rounds, 90) == pytest.approx(np.percentile(flat, 90))


@given(SECONDS)
def test_the_interval_holds_the_ratio(rounds):
    other = tuple(reversed(rounds))
    ratio = ratio_of_medians(rounds, other)
    assert ratio.low <= ratio.value <= ratio.high


def test_drift_that_both_share_does_not_widen_the_interval():
    drifting = _rounds(np.linspace(1, 3, 12))
    half = tuple(tuple(s / 2 for s in one) for one in drifting)
    ratio = ratio_of_medians(half, drifting)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio.decided


def test_equal_contenders_have_no_winner():
    one, two = _rounds([1.0] * 12, 0.1, seed=1), _rounds([1.0] * 12, 0.1, seed=2)
    ratio = ratio_of_medians(one, two)
    assert not ratio.decided
    assert ratio.high - ratio.low < 0.2


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says(paired):
    covered, trials = 0, 60
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        # Rounds drift by more than runs vary; paired ones drift together.
        drift = 1 + 0.1 * rng.standard_normal((2, 12))
        one, two = (_rounds(drift[0 if paired else i], 0.02, seed=2 * seed + i) for i in range(2))
        ratio = ratio_of_medians(one, two, paired=paired)
        covered += ratio.low <= 1 <= ratio.high
    assert covered / trials > 0.85


def test_unpaired_measurements_may_differ_in_length():
    ratio = ratio_of_medians(_rounds([1.0] * 4), _rounds([2.0] * 9), paired=False)
    assert (ratio.low, ratio.value, ratio.high) == (0.5, 0.5, 0.5)


def test_the_seed_decides_the_interval():
    one, two = _rounds([1.0] * 8, 0.1, seed=1), _rounds([1.1] * 8, 0.1, seed=2)
    assert ratio_of_medians(one, two, seed=3) == ratio_of_medians(one, two, seed=3)


def test_spread_is_between_rounds_not_within():
    assert spread(((1.0, 2.0, 3.0),) * 8) == 0
    assert spread(_rounds([1.0, 1.2] * 6)) == pytest.approx(0.2 / 1.1)
