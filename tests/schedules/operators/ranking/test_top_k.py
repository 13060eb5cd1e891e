"""TopK against ONNX Runtime's rule, in numpy: by value, equal ones by index."""

import numpy as np
import pytest

from neocpu.schedules.operators.ranking.top_k import lower_top_k
from tests.schedules.kernel_harness import build, call, unwritten


def run(data, k, largest):
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
    values, indices = run(data, k, largest)
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
