"""Running sums agree with numpy."""

import itertools

import numpy as np
import pytest

from neocpu.schedules.operators.statistics.cumulative_sum import lower_cumulative_sum
from tests.schedules.kernel_harness import run


@pytest.mark.parametrize(("exclusive", "reverse"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(
    "shape", [(3, 5, 1), (2, 1, 8), (4, 7, 37), (1, 40, 64), (2, 30, 200), (1, 1, 1)]
)
def test_sums_along_the_middle_axis(shape, dtype, exclusive, reverse):
    data = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    kernel = lower_cumulative_sum(shape, dtype, exclusive=exclusive, reverse=reverse)
    turned = data[:, ::-1] if reverse else data
    sums = turned.cumsum(1) - (turned if exclusive else 0)
    found = run(kernel, [data], shape, dtype)
    np.testing.assert_array_equal(found, sums[:, ::-1] if reverse else sums)
