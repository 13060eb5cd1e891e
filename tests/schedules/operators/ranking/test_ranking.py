"""TopK, ArgMax and NonZero against numpy, and kernels that read only counted rows.

TopK goes by value, and equal ones by index, as in ONNX Runtime.
"""

import itertools

import numpy as np
import pytest

from neocpu.schedules.operators.indexing.roi_align import RoiAlignWorkload, lower_roi_align
from neocpu.schedules.operators.ranking.arg_extremum import lower_arg_extremum
from neocpu.schedules.operators.ranking.compact import lower_compact
from neocpu.schedules.operators.ranking.non_max_suppression import lower_non_max_suppression
from neocpu.schedules.operators.ranking.top_k import lower_top_k
from tests.conv_workloads import suppression
from tests.schedules.kernel_harness import build, call, run, unwritten


def top_k(data, k, largest):
    kernel = build(lower_top_k(data.shape, k, largest=largest))
    shape = (data.shape[0], k, data.shape[2])
    return call(kernel, [data], [unwritten(shape), unwritten(shape, "int64")])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "k"),
    [((1, 1, 1), 1), ((3, 50, 1), 7), ((2, 9, 5), 9), ((4, 1000, 3), 100), ((3, 1003, 1), 5)],
)
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_top_k(shape, k, largest, step):
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if step:
        data = np.round(data / step).astype(np.float32) * step  # ties, and zeros of both signs
    data[0, 0, 0] = -np.inf
    expected = np.argsort(-data if largest else data, axis=1, kind="stable")[:, :k]
    values, indices = top_k(data, k, largest)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(data, expected, 1))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("value", [0, 255])
def test_elements_that_are_all_the_worst(value, largest):
    """No element is better than the initial value of the kept ones."""
    data = np.full((2, 300, 1), value, np.uint8)
    data[1, 250] = 7
    shape = (2, 5, 1)
    kernel = build(lower_top_k(data.shape, 5, largest=largest, dtype="uint8"))
    values, indices = call(kernel, [data], [unwritten(shape, "uint8"), unwritten(shape, "int64")])
    key = data.astype(int)
    expected = np.argsort(-key if largest else key, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(data, expected, 1))


SHAPES = [(1, 1, 1), (3, 7, 1), (2, 50, 1), (4, 33, 3), (2, 9, 16), (1, 21, 100)]


@pytest.mark.parametrize(("largest", "last"), list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_place_of_the_extremum(shape, dtype, largest, last):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 5, shape).astype(dtype)  # most occur several times
    if dtype[0] == "f":
        data = rng.choice(
            np.array([-1, -0.0, 0.0, 1, np.inf, -np.inf, np.nan, -np.nan], dtype), shape
        )
    best = np.inf if largest else -np.inf
    key = np.where(np.isnan(data), best, data).astype(np.float64) * (1 if largest else -1)
    turned = key[:, ::-1] if last else key
    expected = turned.argmax(1)
    if last:
        expected = shape[1] - 1 - expected
    kernel = lower_arg_extremum(shape, dtype, largest=largest, last=last)
    found = run(kernel, [data], (shape[0], shape[2]), "int64")
    np.testing.assert_array_equal(found, expected)


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
    size = {"data": data.shape, "regions": 4, "bins": (2, 2), "samples": 2, "scale": 1.0}
    workloads = (
        RoiAlignWorkload(offset=0.5, least=None, counted=counted, **size)
        for counted in (False, True)
    )
    whole, part = (build(lower_roi_align(each)) for each in workloads)
    (every,) = call(whole, given, [unwritten(shape)])
    (some,) = call(part, [*given, np.array([3])], [unwritten(shape)])
    np.testing.assert_array_equal(some[:3], every[:3])
    assert not some[3].any()
