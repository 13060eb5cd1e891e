"""Peaks of resized maps, compared with those of maps that are resized entirely."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from text_models import text_model

from neocpu.frontend.numpy_operators.resize_operators import Resize
from neocpu.schedules.operators.indexing.resized_peaks import (
    LONGEST,
    PeaksWorkload,
    lower_resized_peaks,
)
from tests.schedules.kernel_harness import build, call, normal, unwritten


def resized(data: np.ndarray, height: int, width: int, cubic: float) -> np.ndarray:
    """Return ``(1, maps, h, w)`` maps in another size, by the float64 reference of Resize."""
    how = f'mode = "cubic", cubic_coeff_a = {cubic}'
    graph = "resize (double[a, b, c, d] x) => (double[a, b, e, f] y)"
    sizes = {"sizes": np.array([*data.shape[:2], height, width])}
    model = text_model(f"{graph} {{ y = Resize <{how}> (x, , , sizes) }}", sizes)
    (found,) = ReferenceEvaluator(model, new_ops=[Resize]).run(None, {"x": data.astype(np.float64)})
    return found


def peaks(workload, data, heights, widths, count):
    """Return the values, and their rows and columns."""
    found = (workload.rows, workload.maps)
    outputs = [unwritten(found), unwritten((2, *found), "int64")]
    given = [data, heights, widths, np.array([count], np.int64)]
    return call(build(lower_resized_peaks(workload)), given, outputs)


@pytest.mark.parametrize(
    ("maps", "extents", "sides", "count", "cubic"),
    [
        (3, (7, 5), [(13, 17), (1, 1), (7, 5), (2, 31)], 4, -0.75),
        (2, (1, 6), [(5, 3), (1, 40)], 2, -0.5),
        (17, (56, 56), [(71, 23), (9, 9), (56, 112)], 1, -0.75),
    ],
)
def test_peaks(maps, extents, sides, count, cubic):
    rows = len(sides)
    workload = PeaksWorkload(rows, maps, *extents, cubic)
    data = normal((rows, maps, *extents))
    heights, widths = (np.array(side, np.int32) for side in zip(*sides, strict=True))
    values, places = peaks(workload, data, heights, widths, count)
    assert not values[count:].any()
    assert not places[:, count:].any()
    for row in range(count):
        whole = resized(data[row : row + 1], *sides[row], cubic)[0]
        np.testing.assert_allclose(values[row], whole.max((1, 2)), rtol=1e-5, atol=1e-5)
        found = whole[np.arange(maps), places[0, row], places[1, row]]
        np.testing.assert_allclose(found, whole.max((1, 2)), rtol=1e-5, atol=1e-5)


def test_the_first_of_equal_peaks_counts_and_numbers_that_are_none_do_not():
    data = np.zeros((2, 1, 3, 4), np.float32)
    data[0, 0, 1:, :] = 2
    data[1] = np.nan
    sides = np.array([3, 3], np.int32), np.array([4, 4], np.int32)
    values, places = peaks(PeaksWorkload(2, 1, 3, 4), data, *sides, 2)
    assert values[0] == 2
    assert places[:, 0, 0].tolist() == [1, 0]
    assert places[:, 1, 0].tolist() == [0, 0]
    assert LONGEST**2 < 1 << 31
