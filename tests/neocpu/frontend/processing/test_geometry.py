"""Sizes and places of resized pictures against the libraries' own arithmetic."""

import itertools

import numpy as np
import pytest

from neocpu.frontend.processing.geometry import geometry_of
from neocpu.frontend.processing.processing import PictureInput, Resize

SIDES = (1, 7, 33, 48, 64, 75)
CASES = [*itertools.product(SIDES, SIDES, (32, 45), (32, 57))]


def geometry(height, width, size, fit):
    picture = PictureInput("x", "nhwc", None, height, width)
    return geometry_of(picture, size, Resize(*size, fit, "opencv"))


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
def test_rows_of_the_matrices_sum_to_one_where_the_picture_is(fit):
    for height, width, *size in CASES:
        found = geometry(height, width, tuple(size), fit)
        for side, output in zip((found.rows, found.columns), size, strict=True):
            assert side.output == output
            sums = side.padded.sum(axis=1)
            inside = (np.arange(output) >= side.start) & (
                np.arange(output) < side.start + side.length
            )
            np.testing.assert_allclose(sums, inside, atol=1e-5)


def test_a_letterbox_is_ultralytics():
    for height, width, *size in CASES:
        ratio = min(size[0] / height, size[1] / width)
        unpadded = round(height * ratio), round(width * ratio)
        if 0 in unpadded:
            continue
        found = geometry(height, width, tuple(size), "letterbox")
        for side, output, made in zip((found.rows, found.columns), size, unpadded, strict=True):
            assert side.resized == made
            assert side.start == round((output - made) / 2 - 0.1)


def test_a_crop_is_torchvisions():
    for height, width in itertools.product(SIDES, SIDES):
        short, long = sorted((height, width))
        resized = {short: 32, long: int(32 * long / short)}
        found = geometry(height, width, (32, 32), "crop")
        for side, extent in ((found.rows, height), (found.columns, width)):
            assert side.resized == resized[extent]
            assert side.offset == round((resized[extent] - 32) / 2.0)


def test_places_lead_back_to_the_picture():
    """A letterbox of 20x40 in 32x32: 16 rows from the eighth on, 1.25 pixels each."""
    found = geometry(20, 40, (32, 32), "letterbox")
    assert (found.rows.start, found.rows.length) == (8, 16)
    assert (8 + found.rows.offset) * found.rows.scale == 0
    assert (24 + found.rows.offset) * found.rows.scale == 20
