"""One table of element types, which numpy and DLPack agree with."""

import pytest

from neocpu.foundation.bfloat16 import array_dtype
from neocpu.foundation.dtypes import DTYPES


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_is_known_to_numpy_by_name(dtype):
    known = array_dtype(dtype.name)
    assert (known.name, 8 * known.itemsize) == (dtype.name, dtype.bits)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_codes_are_dlpacks(dtype):
    kinds = {"i": 0, "u": 1, "f": 2, "V": 4, "b": 6}
    assert dtype.code == kinds[array_dtype(dtype.name).kind]


def test_every_dtype_has_its_own_datatype_and_code():
    assert len({dtype.datatype for dtype in DTYPES.values()}) == len(DTYPES)
    assert len({(dtype.code, dtype.bits) for dtype in DTYPES.values()}) == len(DTYPES)
