"""Pictures are quantised to NCHW4c of 8 bits in one pass, as in two steps."""

import re

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, build, call, compile_for, normal
from tvm import te

from neocpu.schedules.operators.quantised.quantise import (
    DESTINATION,
    lower_quantised_pack,
    quantise,
)
from neocpu.schedules.vocabulary.layout import DataLayout

SHAPES = [(1, 3, 32, 33), (2, 3, 7, 5), (1, 1, 1, 1), (2, 4, 3, 3), (1, 7, 9, 31), (3, 9, 2, 2)]


def numbers(shape, scale):
    """Return numbers that round up and down, ties, and large, infinite and NaN ones."""
    x = normal(shape, 1) * 100 * np.float32(scale)
    ends = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.5, 1.5, -0.5, -0.0], np.float32)
    ends[-4:] *= np.float32(scale)
    x.reshape(-1)[: x.size // 2 : 3][: len(ends)] = ends[: len(x.reshape(-1)[: x.size // 2 : 3])]
    return x


def in_two_steps(x, scale, zero):
    """Return the result of the operator's own kernel, in NCHW4c."""
    data = te.placeholder(x.shape, "float32")
    grid = te.placeholder((), "float32"), te.placeholder((), "uint8")
    kernel = build(te.create_prim_func([data, *grid, quantise(data, *grid, 1, "uint8")]))
    its = np.array(scale, np.float32), np.array(zero, np.uint8)
    stored = call(kernel, [x, *its], [np.zeros(x.shape, np.uint8)])
    return DataLayout(4).pack(stored[0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("scale", "zero"), [(0.0173, 114), (1.0, 0), (3.7e-3, 255)])
def test_data_are_quantised_and_packed(shape, scale, zero):
    x = numbers(shape, scale)
    kernel = build(lower_quantised_pack(shape, float(np.float32(scale)), zero, HOST))
    output = np.full(DESTINATION.shape(shape), 7, np.uint8)
    (got,) = call(kernel, [x], [output])
    lanes = np.arange(4 * output.shape[1]).reshape(output.shape[1], 1, 1, 4) < shape[1]
    finite = DataLayout(4).pack(np.isfinite(x)) | ~np.broadcast_to(lanes, output.shape)
    real = np.rint(np.clip(np.nan_to_num(x), -1e6, 1e6) / np.float32(scale)) + zero
    expected = DataLayout(4).pack(np.clip(real, 0, 255).astype(np.uint8))
    np.testing.assert_array_equal(got[finite], expected[finite])
    np.testing.assert_array_equal(got, in_two_steps(x, scale, zero))


@pytest.mark.parametrize("target", FOREIGN, ids=str)
def test_quantised_packing_uses_vectors(target):
    assembly = compile_for(lower_quantised_pack((1, 3, 64, 64), 0.02, 3, target), target)
    vectors = re.findall(r"vroundps|vrndscaleps|frint[in]\s+v", assembly)
    scalars = re.findall(r"vroundss|vrndscaless|frint[in]\s+s|nearbyint|gather", assembly)
    assert len(vectors) >= 3, "one of each channel"
    assert not scalars
