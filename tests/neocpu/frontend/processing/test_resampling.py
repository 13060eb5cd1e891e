"""Matrices against the libraries that resize pictures."""

import numpy as np
import pytest

from neocpu.frontend.processing.geometry import resampling_matrix, taps_of

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
