"""Transposed tensors agree with numpy."""

import itertools
import math

import numpy as np
import pytest

from neocpu.schedules.operators.movement.permutation import lower_permutation
from neocpu.schedules.vocabulary.target_parsing import parse_target
from tests.schedules.kernel_harness import HOST, build, call, unwritten

SHAPES = [(17, 33), (16, 16), (1, 20, 1, 9), (5, 17, 19), (4, 3, 18, 21), (2, 600, 4, 5)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "bool", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_order_of_axes_is_right(shape, dtype):
    data = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    made = 0
    for axes in itertools.permutations(range(len(shape))):
        kernel = lower_permutation(shape, axes, dtype, HOST)
        if kernel is None:
            continue
        made += 1
        expected = data.transpose(axes)
        np.testing.assert_array_equal(
            call(build(kernel), [data], [unwritten(expected.shape, dtype)])[0], expected
        )
    assert made


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8, 9, 10), (0, 1, 2)), ((8, 9, 10), (1, 0, 2)), ((3, 100), (1, 0)), ((100, 3), (1, 0))],
)
def test_permutations_of_other_kernels_are_refused(shape, axes):
    """Other kernels take rows that stay rows, and edges that are too short for a tile."""
    assert lower_permutation(shape, axes, "float32", HOST) is None


def test_a_short_edge_has_short_tiles():
    assert lower_permutation((4, 100), (1, 0), "float32", parse_target("llvm -mcpu=znver4"))
