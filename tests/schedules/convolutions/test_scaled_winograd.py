"""Winograd's bfloat16 convolution in 16-bit integers is as accurate as direct convolution."""

import random
from dataclasses import replace

import ml_dtypes
import needs
import numpy as np
import pytest
from conv_reference import computed, relative_error
from conv_workloads import (
    CUBIC,
    FAR_TAPS,
    PAD,
    TINY,
    TWO_IMAGES,
    UNEVEN_PADDING,
    WINDOW,
    conv_workload,
    typed,
)
from drawn_winograd import drawn_case
from integer_winograd import (
    HASWELL,
    NO_WINOGRAD,
    SKYLAKE,
    ZEN4,
    assert_computes_with_instructions,
    assert_loops_over_products,
)
from kernel_harness import check_first_and_last

from neocpu.foundation.bfloat16 import from_bits, round_to_bits
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands, wrong_answer
from neocpu.schedules.convolutions.dot_products import conv2d_dot
from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

ICE_LAKE = parse_target("llvm -mcpu=icelake-server")
TARGETS = [ZEN4, HASWELL, SKYLAKE, ICE_LAKE]

HALVES = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
TO_FLOAT = replace(HALVES, output="float32")
BIAS, RELU = EpilogueOp("bias_add"), EpilogueOp("relu")
RESIDUAL = (BIAS, EpilogueOp("add"), RELU)
# Largest error, norm-wise, of one operator: what `--precision bf16` promises.
PROMISED = 2.0**-8

WORKLOADS = [
    typed(WINDOW, HALVES, (BIAS, RELU)),
    typed(TWO_IMAGES, HALVES, RESIDUAL),
    typed(UNEVEN_PADDING, TO_FLOAT),
    typed(conv_workload(1, 300, 3, 3, 31, (3, 3)), TO_FLOAT, RESIDUAL),  # one pixel
    typed(TINY, HALVES, (BIAS,)),
    typed(FAR_TAPS, HALVES),
    typed(CUBIC, HALVES, RESIDUAL),
    conv_workload(1, 129, 8, 11, 48, (3, 1), padding=(1, 0, 1, 0), numerics=HALVES),
    conv_workload(2, 128, 5, 9, 130, (1, 3), padding=(0, 1, 0, 1), numerics=HALVES),
]


def operands_of(workload, seed=1):
    """Return random operands with float32 weights."""
    weights = random_operands(replace(workload, numerics=Numerics.uniform("float32")), seed).weights
    return replace(random_operands(workload, seed), weights=weights)


def check(workload, scheme, threads=1, target=ZEN4):
    operands = operands_of(workload)
    got = computed(workload, scheme, operands, threads, target)
    assert relative_error(got, conv2d(workload, operands)) <= PROMISED, (str(workload), str(scheme))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(2)
def test_schemes_err_less_than_promised(workload, target):
    check_first_and_last(check, template, workload, target)


def drawn(seed):
    rng = random.Random(seed)
    workload, scheme, threads = drawn_case(rng, [HALVES, TO_FLOAT], [2, 3, 4])
    return replace(workload, epilogue=rng.choice([(), (BIAS,), RESIDUAL])), scheme, threads


@pytest.mark.parametrize("seed", range(32))
@needs.one_in(4)
def test_drawn_convolutions(seed):
    workload, scheme, threads = drawn(seed)
    for target in (ZEN4, HASWELL):
        check(workload, scheme, threads, target)


@pytest.mark.parametrize("channels", [16, 64, 128, 256, 512])
@pytest.mark.parametrize("tile", [2, 3, 4])
@needs.one_in(2)
def test_errs_as_direct_convolution_does(channels, tile):
    """Half of the data are zero, as after a layer; weights are those of an untrained network."""
    workload = conv_workload(1, channels, 12, 12, 48, (3, 3), padding=PAD, numerics=HALVES)
    operands = operands_of(workload)
    operands = replace(operands, data=np.maximum(operands.data, 0))
    expected = conv2d(workload, operands)
    direct = conv2d_dot.space(workload, ZEN4)[0]
    scheme = replace(template.space(workload, ZEN4)[0], tile=tile)
    got = computed(workload, scheme, operands, 1, ZEN4)
    other = computed(workload, direct, operands, 1, HASWELL)
    assert relative_error(got, expected) <= 1.1 * relative_error(other, expected)


@pytest.mark.parametrize("size", [2.0**-80, 2.0**-20, 2.0**20, 2.0**100])
def test_data_of_any_size(size):
    """The padding of blocks, 7 here, does not change the scale."""
    workload = replace(WORKLOADS[0], epilogue=())
    operands = operands_of(workload)
    data = (operands.data.astype(np.float32) * np.float32(size)).astype(operands.data.dtype)
    scheme = template.space(workload, ZEN4)[0]
    got = computed(workload, scheme, replace(operands, data=data), 1, ZEN4)
    expected = conv2d(workload, operands) * np.float64(size)
    assert relative_error(got.astype(np.float64), expected) <= PROMISED


def test_zeros_give_the_bias():
    workload = replace(WORKLOADS[0], epilogue=(BIAS,))
    operands = operands_of(workload)
    operands = replace(operands, data=np.zeros_like(operands.data))
    got = computed(workload, template.space(workload, ZEN4)[0], operands, 1, ZEN4)
    bias = from_bits(round_to_bits(operands.epilogue[0]))
    np.testing.assert_array_equal(got, np.broadcast_to(bias[:, None, None], got.shape))


@pytest.mark.parametrize("target", [ZEN4, HASWELL], ids=lambda target: target.mcpu)
@pytest.mark.parametrize("channels", [16, 101, 128, 1030])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("sign", [1, -1])
@needs.one_in(3)
def test_no_sum_leaves_32_bits(sign, tile, channels, target):
    """All products have one sign, and data are at the ends of their range."""
    workload = conv_workload(1, channels, 8, 8, 16, (3, 3), padding=PAD, numerics=TO_FLOAT)
    operands = operands_of(workload)
    signs = np.sign(operands.data.astype(np.float32))
    for data in (np.ones_like(signs), signs, np.abs(signs), -np.abs(signs)):
        extreme = replace(
            operands,
            data=data.astype(operands.data.dtype),
            weights=np.full_like(operands.weights, sign),
        )
        scheme = replace(template.space(workload, target)[0], tile=tile)
        got = computed(workload, scheme, extreme, 1, target)
        expected = conv2d(workload, extreme)
        assert np.abs(got - expected).max() <= PROMISED * np.abs(expected).max()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan], ids=str)
@pytest.mark.parametrize("split", [False, True])
def test_values_that_are_not_finite_stay_in_their_tiles(value, split):
    workload = conv_workload(1, 40, 16, 16, 32, (3, 3), padding=PAD, numerics=HALVES)
    scheme = WinogradScheme(32, 32, reg_n=3, tile=4, reg_oc=32, strip=2, oc_split=split)
    operands = operands_of(workload)
    clean = computed(workload, scheme, operands, 1, ZEN4)
    operands.data[0, 33, 6, 6] = value
    got = computed(workload, scheme, operands, 2, ZEN4)
    assert np.isnan(got[:, :, 4:8, 4:8]).all()
    tiles = np.zeros((16, 16), bool)
    tiles[4:8, 4:8] = True
    np.testing.assert_array_equal(got[:, :, ~tiles], clean[:, :, ~tiles])


def test_error_bound_leaves_infinite_weights_to_other_templates():
    workload = WORKLOADS[0]
    assert registry.error_bound(template.space(workload, ZEN4)[0], workload) > 1.25


def test_weights_are_not_rounded_to_8_bits():
    workload = WORKLOADS[0]
    operands, scheme = operands_of(workload), template.space(workload, ZEN4)[0]
    given = registry.given_weights(operands.weights, workload, scheme)
    assert given is operands.weights
    direct = conv2d_dot.space(workload, ZEN4)[0]
    assert registry.given_weights(operands.weights, workload, direct).dtype == ml_dtypes.bfloat16


def test_sums_are_made_in_parts_of_whole_vectors():
    workload = replace(WORKLOADS[0], in_channels=300)
    for block, parts in ((32, 3), (48, 3), (16, 3)):
        tiling = Tiling(
            workload,
            WinogradScheme(block, 16, reg_n=4, tile=4, reg_oc=32, strip=1, oc_split=False),
            16,
        )
        assert tiling.parts == parts
        assert tiling.part_chunks * tiling.width == scaled_integers.PART


def test_a_tolerance_of_its_own():
    """Tuning accepts the kernel, and rejects a wrong one."""
    workload = replace(WORKLOADS[0], epilogue=())
    operands, scheme = operands_of(workload), template.space(workload, ZEN4)[0]
    expected = conv2d(workload, operands)
    packed = scheme.out_layout.pack(computed(workload, scheme, operands, 1, ZEN4))
    assert wrong_answer(scheme, packed, expected, reads="bfloat16") is None
    assert wrong_answer(scheme, packed, expected) is not None
    moved = packed + np.float32(0.05) * np.sqrt(np.mean(expected**2))
    assert wrong_answer(scheme, moved, expected, reads="bfloat16") is not None


@pytest.mark.parametrize(
    "change", [*NO_WINOGRAD, {"numerics": replace(HALVES, weights="float32")}], ids=str
)
def test_does_not_apply_to_other_workloads(change):
    assert template.applies(replace(WORKLOADS[0], epilogue=()), ZEN4)
    assert not template.applies(replace(WORKLOADS[0], epilogue=(), **change), ZEN4)


def test_needs_an_instruction():
    assert_computes_with_instructions(WORKLOADS[0])


@pytest.mark.parametrize(("channels", "pixels"), [(64, 56), (128, 28), (256, 14), (512, 7)])
def test_estimates_choose_as_measurements_do(channels, pixels):
    workload = conv_workload(1, channels, pixels, pixels, channels, (3, 3), padding=PAD)
    workload = replace(workload, numerics=HALVES, epilogue=(BIAS, RELU))
    assert registry.schemes(workload, ZEN4)[0].template == "conv2d_winograd"


@pytest.mark.parametrize(("target", "instruction"), [(ZEN4, "vpdpwssd"), (HASWELL, "vpmaddwd")])
@pytest.mark.parametrize(("channels", "pixels"), [(64, 56), (256, 14)])
def test_hot_loop_is_products_and_their_loads(target, instruction, channels, pixels):
    assert_loops_over_products(WORKLOADS[0], channels, pixels, target, instruction)
