"""Winograd's matrices and transforms, against the convolution they compute."""

import math

import numpy as np
import pytest

from neocpu.schedules.convolutions.winograd.filters import (
    ERROR_FACTORS,
    MAX_ERROR_FACTOR,
    POINTS,
    Filter,
    error_factor,
    filters,
    tiles_of,
)

FILTERS = [
    Filter(tile, taps, stride)
    for (taps, stride), factors in ERROR_FACTORS.items()
    for tile in factors
]


def convolve(pixels, taps, filter_):
    starts = range(0, filter_.step, filter_.stride)
    return [pixels[i : i + filter_.taps] @ taps for i in starts]


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
def test_matrices_compute_a_convolution(filter_):
    rng = np.random.default_rng(0)
    pixels, taps = rng.standard_normal(filter_.span), rng.standard_normal(filter_.taps)
    products = (filter_.kernel_matrix() @ taps) * (filter_.input_matrix() @ pixels)
    expected = convolve(pixels, taps, filter_)
    np.testing.assert_allclose(filter_.output_matrix() @ products, expected, atol=1e-11)


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
def test_pixels_are_fewer_than_products_of_direct_convolution(filter_):
    assert filter_.span < filter_.tile * filter_.taps
    assert filter_.step == filter_.tile * filter_.stride


def test_transforms_share_even_and_odd_parts():
    """F(4, 3) has four sums of even pixels, four of odd ones, and four of both."""
    filter_ = Filter(4, 3, 1)
    assert (filter_.input_additions, filter_.output_additions) == (12, 10)
    assert np.count_nonzero(filter_.input_matrix()) - filter_.span > 12


def test_stride_splits_the_filter():
    """Even pixels meet the first and the last tap, odd pixels the one between."""
    filter_ = Filter(3, 3, 2)
    even, odd = np.split(filter_.input_matrix(), [4])
    assert not even[:, 1::2].any()
    np.testing.assert_array_equal(odd[:, 1::2], np.eye(3))
    assert not odd[:, 0::2].any()
    assert not filter_.kernel_matrix()[:4, 1].any()


def test_coefficients_are_exact_in_float32():
    for filter_ in FILTERS:
        for matrix in (filter_.input_matrix(), filter_.output_matrix()):
            np.testing.assert_array_equal(matrix.astype(np.float32), matrix, str(filter_))


def test_opposite_points_and_zero_are_as_many_as_needed():
    for count, points in enumerate(POINTS):
        assert 2 * len(points) + count % 2 == count or count == 1
        assert list(points) == sorted(set(points))
        assert all(point > 0 for point in points)


def test_a_dimension_of_one_tap_is_an_identity():
    down, across = filters(6, (1, 7), (1, 1))
    assert down.is_identity
    assert not across.is_identity
    assert (down.span, down.step, across.span, across.step) == (1, 1, 12, 6)


@pytest.mark.parametrize(
    ("kernel", "stride", "tiles"),
    [
        ((3, 3), (1, 1), (2, 3, 4, 5, 6)),
        ((1, 7), (1, 1), (2, 3, 4, 5, 6)),
        ((7, 7), (1, 1), (2,)),
        ((3, 3), (2, 2), (2, 3, 4, 5)),
        ((1, 1), (1, 1), ()),
        ((3, 3), (3, 3), ()),
        ((3, 11), (1, 1), ()),
    ],
)
def test_tiles_are_those_exact_enough(kernel, stride, tiles):
    assert tiles_of(kernel, stride) == tiles
    assert all(error_factor(tile, kernel, stride) <= MAX_ERROR_FACTOR for tile in tiles)


def test_a_tile_that_is_not_known_is_never_exact_enough():
    """A record of another version may have such a tile."""
    assert error_factor(7, (3, 3), (1, 1)) == error_factor(2, (3, 3), (3, 3)) == math.inf
