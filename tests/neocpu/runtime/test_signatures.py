"""Signatures: the one that fits inputs, and the nearest where none does."""

import numpy as np
import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature


def signature(number, *shapes):
    inputs = tuple(TensorSpec(name, "float32", s) for name, s in zip("xy", shapes, strict=False))
    return Signature(inputs, (TensorSpec("z", "float32", (5,)),), number)


SIZES = SignatureSet([signature(n, (1, 3, h, 64)) for n, h in enumerate((32, 64, 96))])


def test_equal_shapes_are_found():
    assert SIZES.of([np.zeros((1, 3, 64, 64))]).number == 1


@pytest.mark.parametrize(("height", "nearest"), [(70, 64), (81, 96), (1, 32), (500, 96)])
def test_other_shapes_are_refused_with_the_nearest(height, nearest):
    with pytest.raises(UsageError, match=rf"the nearest is x.*1.*3.*{nearest}.*64") as told:
        SIZES.of([np.zeros((1, 3, height, 64))])
    assert "\n" not in str(told.value)


def test_a_single_signature_and_other_ranks_have_no_nearest():
    for signatures, shape in ((SignatureSet(SIZES.all[:1]), (1, 3, 9, 9)), (SIZES, (3, 9, 9))):
        with pytest.raises(UsageError, match="is compiled for") as told:
            signatures.of([np.zeros(shape)])
        assert "nearest" not in str(told.value)
