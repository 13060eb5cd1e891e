"""Denormal numbers: zero in kernels, unchanged in the caller's thread."""

import platform

import numpy as np
import pytest

from neocpu.runtime.module import load

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="no control word known"
)
TINY = np.full(64, 1e-39, np.float32)


def denormals() -> np.ndarray:
    """Return this thread's results with denormals as operands and as a result."""
    return np.concatenate([TINY * np.float32(2), TINY * np.float32(2**126) * np.float32(2**-126)])


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_flush_them_and_callers_keep_theirs(linear, threads):
    with load(linear.path, threads=threads) as module:
        ordinary = module(linear.inputs()[0])
        (x,) = linear.inputs()
        (expected,) = linear.reference(x)
        tiny = module(x * np.float32(1e-39))
        assert denormals().all()
    np.testing.assert_allclose(ordinary, expected, rtol=1e-5, atol=1e-5)
    (nothing,) = linear.reference(np.zeros_like(x))
    np.testing.assert_array_equal(tiny, nothing.astype(np.float32))


def test_results_too_small_to_be_normal_are_zero(two_way):
    """All rows of ``a + s * b`` are zero, because the pool's threads flush too."""
    image, mask = two_way.inputs()
    with load(two_way.path, threads=2) as module:
        total, _ = module([image * np.float32(1e-39), mask * np.float32(1e-39)])
    assert not total.any()
