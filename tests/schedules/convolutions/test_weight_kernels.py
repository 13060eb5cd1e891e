"""Kernels that pack weights, against the templates' packing in numpy, byte for byte."""

import ml_dtypes
import numpy as np
import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, build, call, run

from neocpu.schedules import registry
from neocpu.schedules.convolutions.weight_kernels import OIHW, PackedWeights, lower_packing
from neocpu.schedules.convolutions.winograd.filters import flushed, weight_matrix
from neocpu.schedules.vocabulary.layout import KernelLayout, StrassenLayout, WinogradLayout

LANES = HOST.lanes("float32")


def weights_of(*shape, dtype="float32"):
    numbers = np.random.default_rng(0).standard_normal(shape) * 100
    found = numbers.astype(dtype)
    if dtype == "float32":
        found.reshape(-1)[::7] *= np.float32(1e-42)  # too small to be normal
    return found


def packed_as(weights, layout, array):
    return PackedWeights(weights.shape, weights.dtype.name, layout, array.shape)


def packed(weights, layout):
    array = layout.pack(weights)
    return packed_as(weights, layout, array), array


@pytest.mark.parametrize(
    ("source", "made"),
    [
        (OIHW, KernelLayout(8, 2 * LANES)),
        (KernelLayout(4, LANES), KernelLayout(16, 2 * LANES)),
        (KernelLayout(1, 2 * LANES), KernelLayout(3, LANES)),
        (KernelLayout(16, 24), KernelLayout(8, LANES)),
        (KernelLayout(8, LANES), OIHW),
    ],
)
def test_weights_are_moved(source, made):
    weights = weights_of(37, 19, 3, 2)
    (source, data), (made, expected) = packed(weights, source), packed(weights, made)
    got = run(lower_packing(source, made, HOST), [data], made.shape)
    assert got.tobytes() == expected.tobytes()


def test_weights_of_dot_products_are_moved():
    weights = weights_of(21, 10, 3, 3, dtype="int8")
    for ends in ((8, 16, 4), (4, 32, 4)), ((4, 16, 1), (8, 16, 2)), ((8, 16, 4), (1, 8, 1)):
        one, other = (packed(weights, KernelLayout(*end)) for end in ends)
        got = run(lower_packing(one[0], other[0], HOST), [one[1]], other[0].shape, "int8")
        assert got.tobytes() == other[1].tobytes()


def test_weights_of_bfloat16_are_moved():
    weights = weights_of(21, 10, 3, 3).astype(ml_dtypes.bfloat16)
    (source, data), (made, expected) = (packed(weights, KernelLayout(8, w, 2)) for w in (16, 32))
    (got,) = call(build(lower_packing(source, made, HOST)), [data], [np.zeros_like(expected)])
    assert got.tobytes() == expected.tobytes()


def test_blocks_beyond_all_channels_are_zero():
    weights = weights_of(20, 8, 1, 1)
    made, expected = packed(weights, KernelLayout(8, 8))
    longer = PackedWeights(made.oihw, made.dtype, made.layout, (5, *made.shape[1:]))
    for layout in (OIHW, KernelLayout(4, 32)):
        source, data = packed(weights, layout)
        got = run(lower_packing(source, longer, HOST), [data], longer.shape)
        assert got[:3].tobytes() == expected.tobytes()
        assert not got[3:].any()


@pytest.mark.parametrize(
    ("source", "kernel", "stride"),
    [
        (OIHW, (3, 3), (2, 2)),
        (KernelLayout(8, LANES), (3, 3), (1, 1)),
        (KernelLayout(4, 3 * LANES), (1, 5), (1, 1)),
    ],
)
def test_weights_are_transformed(source, kernel, stride):
    """Results are equal bit for bit: products are exact, and sums have one order."""
    workload = conv_workload(1, LANES + 3, 12, 12, 3 * LANES - 1, kernel, stride=stride)
    weights = flushed(weights_of(*workload.kernel_shape))  # as runs read them
    found = {s for s in registry.schemes(workload, HOST) if s.template == "conv2d_winograd"}
    layouts = {registry.weight_layout(workload, scheme): scheme for scheme in found}
    source, data = packed(weights, source)
    assert layouts
    for layout, scheme in sorted(layouts.items())[::5]:
        assert isinstance(layout, WinogradLayout)
        expected = registry.pack_weights(weights, workload, scheme)
        made = packed_as(weights, layout, expected)
        matrix = weight_matrix(layout.tile, kernel, stride)
        got = run(lower_packing(source, made, HOST), [data, matrix], made.shape)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("ins", [4 * LANES, 5 * LANES + 3])
@pytest.mark.parametrize("source", [OIHW, KernelLayout(8, LANES), KernelLayout(3, 12)])
def test_weights_are_added_up(source, ins):
    """Results are equal bit for bit: factors are powers of two, and sums are in float64."""
    workload = conv_workload(1, ins, 7, 5, 4 * LANES - 3, (1, 1))
    weights = flushed(weights_of(*workload.kernel_shape))  # as runs read them
    weights[:, 3] = weights[5] = 0
    found = [s for s in registry.schemes(workload, HOST) if s.template == "conv2d_strassen"]
    layouts = {registry.weight_layout(workload, scheme): scheme for scheme in found}
    source, data = packed(weights, source)
    assert layouts
    for layout, scheme in layouts.items():
        assert isinstance(layout, StrassenLayout)
        expected = registry.pack_weights(weights, workload, scheme)
        made = packed_as(weights, layout, expected)
        factors = made.factors_in(expected)
        assert (factors.shape, factors.dtype.name) == made.factors
        got = run(lower_packing(source, made, HOST), [data, factors], made.shape)
        np.testing.assert_array_equal(got, flushed(expected))


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize("groups", [1, 2, 24])
def test_layouts_are_those_that_templates_pack(kernel, groups):
    weights = weights_of(24, 24 // groups, *kernel)
    workload = conv_workload(1, 24, 14, 14, 24, kernel, groups=groups)
    known = set()
    for scheme in registry.schemes(workload, HOST):
        layout = registry.weight_layout(workload, scheme)
        moved = isinstance(layout, KernelLayout)
        if not moved or (layout, scheme.template) in known:
            continue
        known.add((layout, scheme.template))
        array = registry.pack_weights(weights, workload, scheme)
        plain = layout.pack(weights).tobytes()
        assert array.tobytes()[: len(plain)] == plain
        assert not any(array.tobytes()[len(plain) :])
    assert known


def test_a_matrix_makes_exact_products():
    matrix = weight_matrix(4, (3, 3), (1, 1))
    parts, _ = np.frexp(matrix)
    np.testing.assert_array_equal(np.ldexp(parts, 29) % 1, 0)
    product = np.float32(1 / 3).astype(np.float64) * matrix
    exact = product.astype(np.longdouble) - np.longdouble(np.float32(1 / 3)) * matrix
    np.testing.assert_array_equal(exact, 0)
