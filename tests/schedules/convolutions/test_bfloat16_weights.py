"""Weights in bfloat16, whose errors cancel within an output channel."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.foundation.bfloat16 import from_bits, round_to_bits
from neocpu.schedules.convolutions.bfloat16_weights import evenly_rounded


def rounded(weights):
    return from_bits(evenly_rounded(weights))


def sums(weights):
    return weights.reshape(len(weights), -1).sum(axis=1, dtype=np.float64)


@pytest.mark.parametrize("shape", [(7, 13, 3, 3), (64, 96, 1, 1), (5, 700, 1, 1), (3, 1, 1, 1)])
def test_errors_of_a_channel_add_up_to_little(shape):
    weights = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    nearest, found = from_bits(round_to_bits(weights)), rounded(weights)
    before, after = np.abs(sums(nearest - weights)), np.abs(sums(found - weights))
    assert (after <= before).all()
    if weights[0].size > 100:
        assert np.median(after) < 0.25 * np.median(before)
    step = np.exp2(np.floor(np.log2(np.abs(weights))) - 7)
    assert (np.abs(found - weights) < 0.7 * step).all()
    assert np.linalg.norm(found - weights) < 1.05 * np.linalg.norm(nearest - weights)


def test_numbers_of_bfloat16_stay():
    weights = from_bits(round_to_bits(np.random.default_rng(1).standard_normal((4, 9, 3, 3))))
    np.testing.assert_array_equal(rounded(weights), weights)


def test_non_finite_and_tiny_numbers_keep_plain_rounding(recwarn):
    weights = np.random.default_rng(2).standard_normal((5, 4, 3, 3)).astype(np.float32)
    weights[0, 0] = np.inf
    weights[1, 0] = np.nan
    weights[2] = 0
    weights[3] = np.finfo(np.float32).max
    weights[4] = 1e-45
    found, nearest = rounded(weights), from_bits(round_to_bits(weights))
    np.testing.assert_array_equal(found, nearest)
    assert not recwarn
