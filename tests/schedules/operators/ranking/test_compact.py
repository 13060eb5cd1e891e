"""The positions of true elements agree with numpy, and kernels read only counted rows."""

import numpy as np
import pytest

from neocpu.schedules.operators.indexing.roi_align import RoiAlignWorkload, lower_roi_align
from neocpu.schedules.operators.ranking.compact import lower_compact
from neocpu.schedules.operators.ranking.non_max_suppression import lower_non_max_suppression
from neocpu.schedules.operators.ranking.top_k import lower_top_k
from tests.conv_workloads import suppression
from tests.schedules.kernel_harness import build, call, unwritten


@pytest.mark.parametrize("shape", [(1,), (37,), (5, 1, 7)])
def test_places_of_true_elements_come_first(shape):
    size = int(np.prod(shape))
    kernel = build(lower_compact(shape))
    for share in (0.0, 0.4, 1.0):
        data = np.random.default_rng(1).uniform(size=shape) < share
        outputs = [unwritten((len(shape), size), "int64"), unwritten((1,), "int64")]
        places, (count,) = call(kernel, [data], outputs)
        np.testing.assert_array_equal(places[:, :count], np.nonzero(data))
        assert count == data.sum()
        assert not places[:, count:].any()


def test_top_k_reads_only_counted_rows():
    data = np.random.default_rng(2).standard_normal((2, 9, 1)).astype(np.float32)
    kernel = build(lower_top_k(data.shape, 4, largest=True, counted=True))
    for count in (0, 1, 4, 6, 9, 99, -1):
        outputs = [unwritten((2, 4, 1)), unwritten((2, 4, 1), "int64")]
        values, places = call(kernel, [data, np.array([count])], outputs)
        real = data[:, : max(count, 0)]
        expected = np.argsort(-real, axis=1, kind="stable")[:, :4]
        found = expected.shape[1]
        np.testing.assert_array_equal(places[:, :found], expected)
        np.testing.assert_array_equal(values[:, :found], np.take_along_axis(real, expected, 1))
        assert not places[:, found:].any()
        assert not values[:, found:].any()


def test_boxes_that_do_not_count_are_not_selected():
    rng = np.random.default_rng(3)
    boxes = rng.uniform(size=(1, 20, 4)).astype(np.float32)
    scores = rng.uniform(size=(1, 2, 20)).astype(np.float32)
    kernel = build(lower_non_max_suppression(suppression(1, 2, 20, 5, counted=True)))
    for count in (0, 1, 11, 20):
        outputs = [unwritten((10, 3), "int64"), unwritten((1,), "int64")]
        rows, (found,) = call(kernel, [boxes, scores, np.array([count])], outputs)
        if not count:
            assert not found
            continue
        alone = suppression(1, 2, count, 5)
        outputs = [unwritten((alone.rows, 3), "int64"), unwritten((1,), "int64")]
        given = [boxes[:, :count], scores[..., :count]]
        given = [np.ascontiguousarray(each) for each in given]
        expected, (number,) = call(build(lower_non_max_suppression(alone)), given, outputs)
        np.testing.assert_array_equal(rows[:found], expected[:number])


def test_regions_that_do_not_count_are_zeros():
    rng = np.random.default_rng(4)
    data = rng.standard_normal((1, 3, 6, 7)).astype(np.float32)
    corners = np.sort(rng.uniform(0, 5, (4, 2, 2)), 1).reshape(4, 4).astype(np.float32)
    given = [data, corners, np.zeros(4, np.int32)]
    shape = (4, 3, 2, 2)
    whole, part = (
        RoiAlignWorkload(
            data=data.shape,
            regions=4,
            bins=(2, 2),
            samples=2,
            scale=1.0,
            offset=0.5,
            least=None,
            counted=counted,
        )
        for counted in (False, True)
    )
    (every,) = call(build(lower_roi_align(whole)), given, [unwritten(shape)])
    (some,) = call(build(lower_roi_align(part)), [*given, np.array([3])], [unwritten(shape)])
    np.testing.assert_array_equal(some[:3], every[:3])
    assert not some[3].any()
