"""Pixel shuffles in every layout agree with numpy."""

import needs
import numpy as np
import pytest
from kernel_harness import HOST, float32, normal, run

from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload, estimate, lower_shuffle


def spread(x, w):
    n, _, height, width = w.coarse
    parts = x.reshape(n, w.rows, w.columns, w.channels, height, width)
    whole = parts.transpose(0, 3, 4, 1, 5, 2).reshape(
        n, w.channels, height * w.rows, width * w.columns
    )
    return whole[:, :, w.top : w.top + w.size[0], w.left : w.left + w.size[1]]


def gather(x, w):
    n, _, height, width = w.coarse
    parts = x.reshape(n, w.channels, height, w.rows, width, w.columns)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(w.coarse)


def shuffle(shape, rows, columns, crop=None, **more):
    """Return a shuffle to a finer grid, or to a part of it: its top, left, height and width."""
    top, left, *size = crop or (0, 0, shape[2] * rows, shape[3] * columns)
    place = {"top": top, "left": left, "size": tuple(size)}
    grid = {"coarse": shape, "rows": rows, "columns": columns}
    return ShuffleWorkload(**{"spreads": True, **grid, **place, **more})


@pytest.mark.parametrize("block", [1, 8, 16])
@pytest.mark.parametrize("spreads", [True, False])
@pytest.mark.parametrize(
    ("shape", "rows", "columns"),
    [
        ((1, 64, 5, 7), 2, 2),
        ((2, 12, 3, 1), 2, 2),
        ((1, 19 * 9, 4, 33), 3, 3),
        ((2, 34, 5, 17), 1, 2),
        ((1, 40, 1, 4), 4, 1),
        ((1, 128, 2, 16), 4, 4),
    ],
)
@needs.one_in(3)
def test_a_whole_grid(shape, rows, columns, spreads, block):
    w, form = shuffle(shape, rows, columns, spreads=spreads), float32(block)
    x = normal(w.shape)
    got = run(lower_shuffle(w, form, HOST), [form.pack(x)], form.shape(w.output_shape))
    expected = (spread if spreads else gather)(x, w)
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(form.unpack(got, w.output_shape[1]), expected)
    padding = got.reshape(-1).size - expected.size
    assert np.count_nonzero(got) == np.count_nonzero(expected), padding


@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize(
    ("shape", "rows", "columns", "crop"),
    [
        ((1, 32, 5, 7), 2, 2, (1, 1, 8, 12)),
        ((2, 44, 3, 3), 2, 2, (0, 1, 5, 5)),
        ((1, 27, 4, 2), 3, 3, (4, 2, 5, 1)),
        ((1, 24, 1, 6), 1, 3, (0, 5, 1, 4)),
    ],
)
def test_a_cropped_shuffle_is_right(shape, rows, columns, crop, block):
    w, form = shuffle(shape, rows, columns, crop), float32(block)
    x = normal(shape)
    got = run(lower_shuffle(w, form, HOST), [form.pack(x)], form.shape(w.output_shape))
    np.testing.assert_array_equal(form.unpack(got, w.channels), spread(x, w))


@pytest.mark.parametrize("block", [1, 8])
def test_frames_of_volumes(block):
    """Each depth slice of the coarser grid becomes two of the finer one."""
    w, form = shuffle((3, 40, 3, 4), 2, 2, (1, 0, 5, 8), frames=2), float32(block)
    x = normal(w.shape)
    got = run(lower_shuffle(w, form, HOST), [form.pack(x)], form.shape(w.output_shape))
    parts = x.reshape(3, 2, 2, 2, 5, 3, 4).transpose(0, 1, 4, 5, 2, 6, 3).reshape(6, 5, 6, 8)
    np.testing.assert_array_equal(form.unpack(got, 5), parts[:, :, 1:])


def test_shifted_lanes_cost_more():
    sizes = (shuffle((1, channels, 28, 28), 2, 2) for channels in (64, 76))
    costs = [estimate(each, float32(8), HOST, 2) for each in sizes]
    assert 0 < costs[0] < costs[1]
