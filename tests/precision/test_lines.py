"""Lines of text fill their pictures; strings are compared letter by letter, pages box by box."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.precision.lines import Writer
from tests.precision.tasks import boxes_alike, letters_alike, text_boxes


def _writer(seed: int) -> Writer:
    matplotlib = pytest.importorskip("matplotlib")
    fonts = Path(matplotlib.get_data_path()) / "fonts/ttf"
    return Writer((fonts / "DejaVuSans.ttf",), ("abuse", "mill"), np.random.default_rng(seed))


@pytest.mark.parametrize(("width", "height"), [(320, 48), (192, 48), (300, 21)])
def test_letters_fill_their_line(width, height):
    writer = _writer(7)
    for _ in range(20):
        image, text = writer.line(width, height)
        assert text.strip()
        assert image.height == height
        assert image.width <= width
        grey = np.asarray(image, np.float32).mean(axis=2)
        rows = np.flatnonzero(grey.min(axis=1) < 120)
        assert rows[-1] - rows[0] > 0.55 * height


def test_a_seed_draws_the_same():
    first, second = _writer(3).line(320, 48), _writer(3).line(320, 48)
    assert first[1] == second[1]
    np.testing.assert_array_equal(np.asarray(first[0]), np.asarray(second[0]))


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("", "", 1),
        ("abc", "abc", 1),
        ("abc", "", 0),
        ("s0urce", "source", 5 / 6),
        ("ab", "xab", 2 / 3),
    ],
)
def test_letters_that_are_the_same(one, other, share):
    assert letters_alike(one, other) == letters_alike(other, one) == pytest.approx(share)


def test_boxes_enclose_certain_text():
    scores = np.zeros((40, 60), np.float32)
    scores[4:12, 5:50] = 0.9
    scores[20:30, 5:25] = 0.5  # not sure enough
    scores[34:37, 5:50] = 0.9  # too thin
    assert text_boxes(scores) == [(5, 4, 50, 12)]


def test_boxes_are_the_same_where_they_share_half():
    box, moved, far = (0, 0, 20, 10), (4, 1, 22, 11), (40, 0, 60, 10)
    assert boxes_alike([box], [moved]) == 1.0
    assert boxes_alike([box, far], [moved]) == pytest.approx(2 / 3)
    assert boxes_alike([box], [far]) == 0.0
    assert boxes_alike([], []) == 1.0
