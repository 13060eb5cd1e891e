"""Weights as integers."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.quantiser.stored_tensors import LARGEST, store
from neocpu.schedules.convolutions.dot_products.int16_sums import SUM_BOUND, largest_sums

RNG = np.random.default_rng(0)
SHAPES = [(7, 13, 3, 3), (8, 1, 5, 5), (5, 3, 1, 1), (11, 37)]


def weights(shape):
    scale = RNG.uniform(0.1, 10, (shape[0], *[1] * (len(shape) - 1)))
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("per_channel", [True, False])
def test_integers_are_the_nearest(shape, per_channel):
    given = weights(shape)
    found = store(given, per_channel=per_channel, products=0)
    assert found.values.dtype == np.int8
    assert found.scale.shape == ((shape[0],) if per_channel else (1,))
    step = np.broadcast_to(found.scale.reshape(-1, *[1] * (len(shape) - 1)), shape)
    assert np.all(np.abs(found.real - given) <= 0.501 * step)
    assert np.abs(found.values.astype(int)).max() == LARGEST


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("products", [2, 4, 8])
def test_sums_fit_16_bits(shape, per_channel, products):
    found = store(weights(shape), per_channel=per_channel, products=products)
    assert largest_sums(found.values, products).max() <= SUM_BOUND


@pytest.mark.parametrize("shape", [(9, 1, 3, 3), (7, 3, 3, 3), (5, 5, 1, 3)], ids=str)
@pytest.mark.parametrize("per_channel", [True, False])
def test_pairs_that_belong_to_two_places_fit_16_bits(shape, per_channel):
    """A pair may cross two taps in ONNX Runtime's rows of an odd number of channels."""
    given = weights(shape)
    given[:, -1, 0, 0] = given[:, 0, 0, 1] = 50.0

    def largest(depthwise):
        found = store(given, per_channel=per_channel, products=4, depthwise=depthwise)
        rows = [np.ravel(each.transpose(1, 2, 0)).astype(int) for each in found.values]
        pairs = [row[k : k + 2] for row in rows for k in range(0, len(row), 2)]
        return max(max(p[p > 0].sum(), -p[p < 0].sum()) for p in pairs)

    assert largest(depthwise=False) <= SUM_BOUND < largest(depthwise=True)


def test_only_channels_that_would_overflow_have_coarser_steps():
    given = np.zeros((2, 4, 1, 1), np.float32)
    given[0, :2] = given[1, :2] = 1.0
    given[1, 1] = -1.0
    found = store(given, per_channel=True, products=2)
    assert found.values[0, 0, 0, 0] == 64
    assert found.values[1, 0, 0, 0] == LARGEST


def test_a_channel_that_is_nearly_nothing_leaves_room_for_its_bias():
    given = np.full((2, 3, 1, 1), 1e-9, np.float32)
    given[0] = 1.0
    found = store(given, per_channel=True, products=0, least=np.array([1e-6, 1e-6]))
    assert found.scale[1] == np.float32(1e-6)
    assert found.scale[0] == np.float32(1 / LARGEST)


def test_the_largest_sums_equal_counted_ones():
    values = RNG.integers(-128, 128, (3, 10, 2, 1)).astype(np.int8)
    for products in (2, 4, 8):
        groups, found = products // 2, largest_sums(values, products)
        padded = np.pad(values.astype(int), ((0, 0), (0, 16), (0, 0), (0, 0)))
        for channel in range(3):
            best = 0
            for tap in range(2):
                for start in range(0, 16, 4 * groups):
                    for half in (0, 2):
                        some = [
                            padded[channel, start + 4 * g + half + k, tap, 0]
                            for g in range(groups)
                            for k in range(2)
                        ]
                        best = max(
                            best, sum(max(v, 0) for v in some), sum(max(-v, 0) for v in some)
                        )
            assert found[channel] == best
