"""Arrays in a temporary file keep their values, and outlive it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from neocpu.foundation.array_file import LEAST_BYTES, ArrayFile


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
def test_arrays_survive_the_deletion_of_their_file(dtype: type) -> None:
    random = np.random.default_rng(0)
    given = [random.integers(-9, 9, (3, LEAST_BYTES + n)).astype(dtype) for n in range(3)]
    file = ArrayFile()
    kept = [file.keep(array) for array in given]
    del file
    for array, own in zip(given, kept, strict=True):
        assert own.dtype == array.dtype
        assert not np.shares_memory(own, array)
        np.testing.assert_array_equal(own, array)


def test_small_arrays_stay_in_memory() -> None:
    array = np.zeros(4, np.float32)
    assert ArrayFile().keep(array) is array
