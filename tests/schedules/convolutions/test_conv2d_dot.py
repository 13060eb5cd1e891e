"""Integer convolutions equal the reference bit for bit, over awkward sizes."""

from dataclasses import replace

import needs
import numpy as np
import pytest
from any_integers import in_any_integers
from conv_reference import check_exact
from conv_workloads import conv_workload
from kernel_harness import build, call, check_first_and_last, check_folds

from neocpu.schedules.convolutions.dot_products import conv2d_dot as template
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics, Quantisation
from neocpu.schedules.vocabulary.scheme import DotScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

ZEN4 = parse_target("llvm -mcpu=znver4")
ALDER_LAKE = parse_target("llvm -mcpu=alderlake")
NEOVERSE = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1")
# Without an instruction for it.
HASWELL = parse_target("llvm -mcpu=haswell")
SKYLAKE = parse_target("llvm -mcpu=skylake-avx512")
TARGETS = [ZEN4, ALDER_LAKE, NEOVERSE, HASWELL]

INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
TO_FLOAT = replace(INTEGERS, output="float32")
ASYMMETRIC = replace(INTEGERS, quantised=(("data", Quantisation("tensor", symmetric=False)),))
STORED = (EpilogueOp("quantise", (0.0,)),)
SCALED = (EpilogueOp("bias_add"), EpilogueOp("rescale"))
PLAIN = (*SCALED, *STORED)
RESIDUAL = (*SCALED, EpilogueOp("add"), EpilogueOp("relu"), *STORED)
ZERO_POINT = (*SCALED, EpilogueOp("quantise", (101.0,)))
PAD = (1, 1, 1, 1)

WORKLOADS = [
    conv_workload(1, 67, 7, 7, 59, (1, 1), numerics=INTEGERS, epilogue=PLAIN),
    conv_workload(1, 64, 9, 5, 64, (1, 1), numerics=INTEGERS, epilogue=RESIDUAL),
    conv_workload(2, 41, 5, 9, 37, (1, 1), stride=(2, 2), numerics=INTEGERS, epilogue=PLAIN),
    conv_workload(1, 130, 1, 1, 31, (1, 1), numerics=TO_FLOAT, epilogue=SCALED),
    conv_workload(1, 40, 7, 6, 33, (3, 3), padding=PAD, numerics=INTEGERS, epilogue=PLAIN),
    conv_workload(1, 17, 9, 11, 20, (3, 3), padding=PAD, numerics=ASYMMETRIC, epilogue=ZERO_POINT),
    conv_workload(
        2,
        3,
        17,
        13,
        20,
        (5, 3),
        stride=(2, 1),
        padding=(2, 0, 1, 3),
        dilation=(1, 2),
        numerics=ASYMMETRIC,
        epilogue=PLAIN,
    ),
    conv_workload(1, 16, 3, 3, 16, (3, 3), numerics=TO_FLOAT, epilogue=SCALED),
    conv_workload(
        3,
        5,
        6,
        7,
        7,
        (2, 2),
        stride=(3, 3),
        padding=(0, 1, 1, 0),
        numerics=INTEGERS,
        epilogue=PLAIN,
    ),
    # In groups.
    conv_workload(
        2,
        96,
        5,
        6,
        144,
        (3, 3),
        stride=(2, 1),
        padding=PAD,
        dilation=(1, 1),
        groups=3,
        numerics=ASYMMETRIC,
        epilogue=ZERO_POINT,
    ),
    conv_workload(1, 160, 7, 5, 160, (1, 1), groups=10, numerics=INTEGERS, epilogue=RESIDUAL),
    conv_workload(16, 16, 16, 16, 16, (3, 3), padding=PAD, numerics=INTEGERS, epilogue=PLAIN),
]


def check(workload, scheme, threads=1, target=ZEN4):
    check_exact(template, workload, scheme, threads, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(3)
def test_schemes_are_exact(workload, target):
    check_first_and_last(check, template, workload, target)


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(
            DotScheme(64, 16, reg_n=3, unroll_ker=True, reg_oh=2, reg_oc=48),
            marks=needs.everything(),
        ),
        DotScheme(16, 64, reg_n=1, unroll_ker=False, reg_oh=1, reg_oc=16),
        DotScheme(32, 32, reg_n=6, unroll_ker=True, reg_oh=1, reg_oc=64),
        DotScheme(4, 16, reg_n=2, unroll_ker=False, reg_oh=4, reg_oc=32),
    ],
    ids=str,
)
def test_tiles_and_blocks_that_divide_nothing(scheme):
    check(WORKLOADS[4], scheme, threads=2)
    check(replace(WORKLOADS[4], padding=(0, 2, 3, 1)), scheme)


def test_channels_are_shared_out_where_weights_are_many():
    workload = conv_workload(1, 520, 3, 3, 300, (3, 3), padding=PAD, numerics=INTEGERS)
    check(replace(workload, epilogue=PLAIN), template.space(workload, ZEN4)[0], threads=3)


def test_sums_as_large_as_they_get():
    """Each product is at its bound, and no instruction may saturate."""
    workload = conv_workload(1, 256, 3, 3, 16, (1, 1), numerics=TO_FLOAT, epilogue=SCALED)
    scheme = template.space(workload, ZEN4)[0]
    weights = np.full(workload.kernel_shape, -128, np.int8)
    (got,) = brightest(workload, scheme, weights, ZEN4)
    assert np.all(got == -128 * 255 * 256)


def brightest(workload, scheme, weights, target):
    """Return the sums of an image whose pixels are all 255."""
    func = in_any_integers(template.lower(workload, scheme, target), target)
    *shapes, (shape, dtype) = template.argument_shapes(workload, scheme)
    (data, _), _, (vector, _), _ = shapes
    arguments = [
        np.full(data, 255, np.uint8),
        template.pack_weights(weights, workload, scheme),
        np.zeros(vector, np.int32),
        np.ones(vector, np.float32),
    ]
    return call(build(func), arguments, [np.zeros(shape, dtype)])


def test_folds_between_any_blocks_of_whole_vectors():
    check_folds(check, template, WORKLOADS[4], ZEN4, (8, 48), refused=[(6, 16), (16, 8)])


@pytest.mark.parametrize(
    "change", [{"numerics": FLOAT32}, {"groups": 2, "in_channels": 40, "out_channels": 32}], ids=str
)
def test_does_not_apply_to_other_workloads(change):
    assert not template.applies(replace(WORKLOADS[4], epilogue=(), **change), ZEN4)


def test_needs_an_instruction():
    assert not template.applies(WORKLOADS[0], parse_target("llvm -mcpu=nehalem"))
    assert template.applies(WORKLOADS[0], HASWELL)
    assert template.applies(WORKLOADS[0], ALDER_LAKE)


def test_signed_products_serve_unsigned_data():
    """A Cortex-A76 has SDOT, and no instruction for bytes of both kinds."""
    target = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    assert target.dot_unit(INTEGERS).offset == 128
    for workload in (WORKLOADS[1], WORKLOADS[5]):
        check(workload, template.space(workload, target)[0], threads=3, target=target)


@pytest.mark.parametrize("sums", [2, 4, 8])
@pytest.mark.parametrize("target", [HASWELL, SKYLAKE], ids=lambda target: target.mcpu)
@pytest.mark.parametrize("workload", [WORKLOADS[n] for n in (1, 5, 6)], ids=str)
@needs.one_in(2)
def test_small_weights_are_added_up_in_16_bits(workload, target, sums):
    small = replace(workload, numerics=replace(workload.numerics, int16_sums=sums))
    schemes = template.space(small, target)
    if small.in_channels == 64:
        longest = max(scheme.int16_groups for scheme in schemes)
        assert longest == (sums // 2 if sums > 2 else 0)
    for groups in {scheme.int16_groups for scheme in schemes}:
        check(small, next(s for s in schemes if s.int16_groups == groups), 2, target)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("sums", [2, 4, 8])
def test_sums_that_the_workload_promises_fit_16_bits(sums, sign):
    """Each 16-bit sum is at its bound."""
    numerics = replace(TO_FLOAT, int16_sums=sums)
    workload = conv_workload(1, 64, 3, 3, 16, (1, 1), numerics=numerics, epilogue=SCALED)
    weights = np.full(workload.kernel_shape, sign * 128 // sums, np.int8)
    for scheme in template.space(workload, HASWELL)[:8]:
        (got,) = brightest(workload, scheme, weights, HASWELL)
        assert np.all(got == sign * 128 // sums * 255 * 64), scheme


def test_larger_weights_are_widened():
    """The sum of neighbouring products does not fit 16 bits."""
    workload = conv_workload(1, 64, 3, 3, 16, (1, 1), numerics=TO_FLOAT, epilogue=SCALED)
    for weight in (-128, 127):
        weights = np.full(workload.kernel_shape, weight, np.int8)
        scheme = template.space(workload, HASWELL)[0]
        (got,) = brightest(workload, scheme, weights, HASWELL)
        assert np.all(got == weight * 255 * 64)
