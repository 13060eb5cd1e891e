"""The positions of extrema agree with numpy."""

import itertools

import numpy as np
import pytest

from neocpu.schedules.operators.ranking.arg_extremum import lower_arg_extremum
from tests.schedules.kernel_harness import run

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
