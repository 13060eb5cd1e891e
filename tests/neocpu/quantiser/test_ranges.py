"""Ranges of tensors, and the histograms that they are found with."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.quantiser.ranges import HALF_BINS, METHODS, Histogram, Range, Rounding

RNG = np.random.default_rng(0)
SHAPE = (2, 5, 30, 20)
TENSORS = {
    "normal": lambda: RNG.standard_normal(SHAPE),
    "after a relu": lambda: np.maximum(RNG.standard_normal(SHAPE), 0),
    "never above zero": lambda: -RNG.random(SHAPE),
    "with outliers": lambda: RNG.standard_t(2.5, SHAPE),
    "far from zero": lambda: 7 + 0.1 * RNG.standard_normal(SHAPE),
}


def collected(samples):
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample)
    return histogram.result()


def samples_of(name, count=5):
    return [TENSORS[name]().astype(np.float32) for _ in range(count)]


def error(values, found, rounding):
    scale, zero = found.steps(rounding.levels, symmetric=rounding.symmetric)
    stored = np.clip(np.rint(values / scale) + zero, 0, rounding.levels)
    return float(np.mean(np.square((stored - zero) * scale - values)))


@pytest.mark.parametrize("name", TENSORS)
def test_a_histogram_holds_every_value(name):
    samples = samples_of(name)
    # The largest last, so that bins have to grow.
    samples.sort(key=lambda sample: np.abs(sample).max())
    seen, every = collected(samples), np.concatenate(samples)
    assert seen.counts.sum() + seen.zeros == every.size
    assert (seen.low, seen.high) == (every.min(), every.max())
    np.testing.assert_allclose(seen.means, every.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    for share in (0.001, 0.3, 0.5, 0.999):
        found, width = seen.quantile(share), seen.limit / HALF_BINS
        assert np.mean(every <= found + width) >= share
        assert np.mean(every < found - width) <= share


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TENSORS)
def test_every_method_finds_a_range_with_zero(name, method, symmetric):
    samples = samples_of(name)
    rounding = Rounding(symmetric=symmetric)
    found = METHODS[method](collected(samples), rounding)
    assert found.low <= 0 <= found.high
    assert found.low < found.high
    scale, zero = found.steps(255, symmetric=symmetric)
    assert scale > 0
    assert 0 <= zero <= 255
    whole = METHODS["minmax"](collected(samples), rounding)
    assert found.low >= whole.low - 1e-6
    assert found.high <= whole.high + 1e-6


@pytest.mark.parametrize("name", TENSORS)
def test_mean_squared_error_is_the_least_of_all(name):
    samples = samples_of(name)
    seen, every, rounding = collected(samples), np.concatenate(samples), Rounding()
    errors = {m: error(every, find(seen, rounding), rounding) for m, find in METHODS.items()}
    assert errors["mse"] <= 1.05 * min(errors.values()), errors


def test_outliers_are_cut_off_but_by_minimum_and_maximum():
    sample = RNG.standard_normal(SHAPE).astype(np.float32)
    sample[0, 0, 0, 0] = 1000
    seen = collected([sample])
    assert METHODS["minmax"](seen, Rounding()).high == 1000
    assert METHODS["percentile"](seen, Rounding(percentile=99.9)).high < 10


def test_moving_averages_follow_the_samples():
    one = np.ones((1, 2, 2, 2), np.float32)
    seen = collected([one, 2 * one, 2 * one])
    assert METHODS["moving-average"](seen, Rounding()).high == pytest.approx(1.19)


def test_zero_is_a_step():
    for low, high in ((-1.0, 2.0), (-0.3, 0.0), (0.0, 5.0), (-1e-9, 1.0)):
        scale, zero = Range(low, high).steps(255, symmetric=False)
        assert isinstance(zero, int)
        assert abs((0 - zero) * scale - low) <= scale
    assert Range(-1.0, 3.0).steps(255, symmetric=True) == (np.float32(3 / 127), 128)
    assert Range(0.0, 3.0).steps(255, symmetric=True) == (np.float32(3 / 255), 0)


def test_nothing_but_zeros_has_a_scale():
    seen = collected([np.zeros(SHAPE, np.float32)])
    assert seen.is_constant
    for find in METHODS.values():
        assert find(seen, Rounding()).steps(255, symmetric=False) == (1.0, 0)
