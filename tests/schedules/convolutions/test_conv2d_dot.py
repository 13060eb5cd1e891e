"""Integer convolutions equal the reference bit for bit, over awkward sizes."""

from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import check_exact, computed
from conv_workloads import (
    CUBIC,
    DILATED,
    FEW_CHANNELS,
    ONE_PIXEL,
    PAD,
    PIXELS,
    STRIDED_PIXELS,
    WHOLE_PIXELS,
    WIDE_STRIDES,
    WINDOW,
    conv_workload,
    typed,
)
from kernel_harness import check_first_and_last, check_folds

from neocpu.schedules.convolutions.conv2d_reference import Operands
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

WORKLOADS = [
    typed(PIXELS, INTEGERS, PLAIN),
    typed(WHOLE_PIXELS, INTEGERS, RESIDUAL),
    typed(STRIDED_PIXELS, INTEGERS, PLAIN),
    typed(ONE_PIXEL, TO_FLOAT, SCALED),
    typed(WINDOW, INTEGERS, PLAIN),
    typed(FEW_CHANNELS, ASYMMETRIC, ZERO_POINT),
    typed(DILATED, ASYMMETRIC, PLAIN),
    typed(conv_workload(1, 16, 3, 3, 16, (3, 3)), TO_FLOAT, SCALED),
    typed(WIDE_STRIDES, INTEGERS, PLAIN),
    typed(
        conv_workload(2, 96, 5, 6, 144, (3, 3), stride=(2, 1), padding=PAD, groups=3),
        ASYMMETRIC,
        ZERO_POINT,
    ),
    typed(conv_workload(1, 160, 7, 5, 160, (1, 1), groups=10), INTEGERS, RESIDUAL),
    typed(CUBIC, INTEGERS, PLAIN),
]


def check(workload, scheme, threads=1, target=ZEN4):
    check_exact(workload, scheme, threads, target)


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


def check_brightest(products, weight, target, numerics=TO_FLOAT, schemes=1):
    """Check sums of so many products of equal weights with pixels that are all 255."""
    workload = conv_workload(1, products, 3, 3, 16, (1, 1), numerics=numerics, epilogue=SCALED)
    operands = Operands(
        np.full(workload.input_shape, 255, np.uint8),
        np.full(workload.kernel_shape, weight, np.int8),
        (np.zeros(16, np.int32), np.ones(16, np.float32)),
    )
    for scheme in template.space(workload, target)[:schemes]:
        got = computed(workload, scheme, operands, 1, target)
        assert np.all(got == weight * 255 * products), scheme


def test_sums_as_large_as_they_get():
    """Each product is at its bound, and no instruction may saturate."""
    check_brightest(256, -128, ZEN4)


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
    check_brightest(64, sign * 128 // sums, HASWELL, numerics, schemes=8)


@pytest.mark.parametrize("weight", [-128, 127])
def test_larger_weights_are_widened(weight):
    """The sum of neighbouring products does not fit 16 bits."""
    check_brightest(64, weight, HASWELL)
