"""Prepared pictures agree with resizing by dense matrices in float64."""

import numpy as np
import pytest
from kernel_harness import run

from neocpu.frontend.processing.geometry import resampling_matrix, taps_of
from neocpu.schedules.operators.pictures.prepare_picture import (
    PictureWorkload,
    lanes_of,
    lower_prepare_picture,
)

BORDER = 114.0
CASES = {
    # height, width, colours, planar, reversed, planes, height and width of the region and of all
    "antialiased": (31, 47, 3, False, True, True, (13, 17), (13, 17), "pillow"),
    "grown": (5, 7, 3, False, False, True, (11, 16), (11, 16), "pillow"),
    "many taps": (97, 90, 3, False, False, True, (5, 4), (5, 4), "pillow"),
    "letterboxed": (19, 33, 3, False, True, True, (9, 16), (16, 16), "opencv"),
    "letterboxed the other way": (33, 19, 3, True, False, True, (16, 9), (16, 17), "opencv"),
    "planar": (31, 47, 3, True, True, True, (13, 17), (13, 17), "opencv"),
    "grey": (31, 47, 1, False, False, True, (13, 17), (13, 17), "pillow"),
    "grey with many taps": (97, 90, 1, False, False, True, (5, 4), (5, 4), "pillow"),
    "colours last": (31, 47, 3, False, True, False, (13, 17), (13, 17), "opencv"),
    "planar, colours last": (31, 47, 3, True, False, False, (13, 17), (13, 17), "pillow"),
    "as large": (9, 11, 3, False, False, True, (9, 11), (9, 11), "opencv"),
    "one pixel": (1, 1, 3, False, True, True, (1, 1), (1, 1), "opencv"),
    "one pixel, grown": (1, 1, 1, True, False, True, (3, 2), (4, 5), "pillow"),
    "large enough for threads": (70, 90, 3, False, True, True, (60, 64), (61, 64), "opencv"),
}


def prepared(case, images=2, cropped=0):
    """Return a workload, its kernel's arguments, and the expected output."""
    height, width, colours, planar, reversed, planes, region, size, sampling = case
    rng = np.random.default_rng(0)
    rows = resampling_matrix(height, region[0], sampling)
    columns = resampling_matrix(width, region[1] + 2 * cropped, sampling)
    columns = columns[cropped : cropped + region[1]]
    sides = [taps_of(rows), taps_of(columns)]
    first, last = sides[1].first.min(), sides[1].first.max() + sides[1].weights.shape[1]
    top, left = (size[0] - region[0]) // 2, (size[1] - region[1]) // 2
    workload = PictureWorkload(
        images=images,
        height=height,
        width=width,
        colours=colours,
        planar=planar,
        reversed=reversed,
        size=size,
        planes=planes,
        region=(top, left, *region),
        columns=(int(first), int(last)),
        taps=tuple(taps.weights.shape[1] for taps in sides),
        border=BORDER,
    )
    picture = rng.integers(0, 256, workload.picture, dtype=np.uint8)
    factors, offsets = rng.uniform(0.1, 1, (2, lanes_of(colours))).astype(np.float32)
    places = ((sides[1].first - first) * workload.interleaved).astype(np.int32)
    arrays = [picture, sides[0].first, sides[0].weights, places, sides[1].weights]
    bytes_ = picture if planar else picture.transpose(0, 3, 1, 2)
    made = np.full((images, colours, *size), BORDER)
    inner = made[:, :, top : top + region[0], left : left + region[1]]
    inner[:] = rows.astype(float) @ bytes_ @ columns.T.astype(float)
    made = made * factors[:colours, None, None] + offsets[:colours, None, None]
    made = made[:, ::-1] if reversed else made
    return workload, [*arrays, factors, offsets], made if planes else made.transpose(0, 2, 3, 1)


@pytest.mark.parametrize("name", CASES)
def test_pictures_are_resized_as_the_matrices_say(name):
    workload, arrays, expected = prepared(CASES[name])
    made = run(lower_prepare_picture(workload), arrays, workload.output)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)


def test_a_crop_reads_its_columns_alone():
    workload, arrays, expected = prepared(CASES["antialiased"], images=1, cropped=4)
    assert workload.columns[0] > 0
    assert workload.columns[1] < workload.width
    made = run(lower_prepare_picture(workload), arrays, workload.output)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)
