"""Weights that are equal, bit for bit, are stored once."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.lowering.weight_table import WeightTable

WEIGHTS = np.random.default_rng(0).standard_normal((13, 7, 5)).astype(np.float32)


def test_equal_arrays_are_stored_once():
    table = WeightTable()
    first = table.add(WEIGHTS, "key")
    assert table.add(WEIGHTS.copy()) is first
    assert table.add(np.asfortranarray(WEIGHTS)) is first
    assert table.add(np.zeros(1), "key") is first
    assert len(table.arrays) == len(table.params) == 1


@pytest.mark.parametrize("place", range(0, WEIGHTS.size, 37))
def test_arrays_that_differ_anywhere_are_stored_twice(place):
    table = WeightTable()
    other = WEIGHTS.copy()
    other.reshape(-1)[place] += 1
    assert table.add(WEIGHTS) is not table.add(other)


def test_arrays_of_other_bits_shapes_or_types_are_stored_twice():
    table = WeightTable()
    zeros = np.zeros((2, 3), np.float32)
    arrays = (zeros, -zeros, zeros.T, zeros.view(np.int32))
    assert len({id(table.add(array)) for array in arrays}) == len(arrays)
    nan = np.full(3, np.nan, np.float32)
    assert table.add(nan) is table.add(nan.copy())
