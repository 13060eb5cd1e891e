"""Sizes and places of resized pictures against the libraries' own arithmetic."""

import itertools

import numpy as np
import pytest

from neocpu.frontend.processing.geometry import geometry_of, resampling_matrix, taps_of
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


SIZES = [((48, 64), (22, 22)), ((33, 17), (7, 64)), ((5, 9), (10, 3)), ((100, 98), (50, 49)),
         ((13, 13), (13, 13)), ((1, 1), (4, 3)), ((3, 101), (1, 1))]  # fmt: skip


def resized(picture, size, sampling):
    rows, columns = (
        resampling_matrix(extent, output, sampling).astype(float)
        for extent, output in zip(picture.shape[:2], size, strict=True)
    )
    return np.einsum("ah,hwc,bw->abc", rows, picture, columns)


@pytest.mark.parametrize(("given", "size"), SIZES)
def test_one_step_from_pillow(given, size):
    image = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).integers(0, 256, (*given, 3), dtype=np.uint8)
    theirs = image.fromarray(picture).resize(size[::-1], image.Resampling.BILINEAR)
    assert np.abs(resized(picture, size, "pillow") - np.asarray(theirs)).max() <= 1


@pytest.mark.parametrize(("given", "size"), SIZES)
def test_one_step_from_opencv(given, size):
    cv2 = pytest.importorskip("cv2")
    picture = np.random.default_rng(0).integers(0, 256, (*given, 3), dtype=np.uint8)
    theirs = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.abs(resized(picture, size, "opencv") - theirs).max() <= 1


def test_opencv_by_hand():
    """OpenCV documents the two pixels beside ``(x + 0.5) * scale - 0.5``, within the edges."""
    third = resampling_matrix(4, 3, "opencv")
    np.testing.assert_allclose(
        third, [[5 / 6, 1 / 6, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 1 / 6, 5 / 6]], atol=1e-6
    )
    np.testing.assert_allclose(
        resampling_matrix(2, 4, "opencv"), [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]
    )


@pytest.mark.parametrize("sampling", ["pillow", "opencv"])
@pytest.mark.parametrize(("extent", "output"), [(31, 7), (7, 31), (5, 5), (1, 3), (640, 224)])
def test_taps_are_the_matrix(extent, output, sampling):
    matrix = resampling_matrix(extent, output, sampling)
    taps = taps_of(matrix)
    made = np.zeros_like(matrix)
    for row, (first, weights) in enumerate(zip(taps.first, taps.weights, strict=True)):
        made[row, first : first + len(weights)] += weights
    np.testing.assert_array_equal(made, matrix)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)
