"""Convolutions of bfloat16: close to the reference over awkward sizes, and their code."""

import re
from dataclasses import replace

import ml_dtypes
import needs
import numpy as np
import pytest
from conv_reference import check_rounded, relative_error, written
from conv_workloads import (
    CUBIC,
    DILATED,
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
from kernel_harness import build, call, check_first_and_last, check_folds, compile_for
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import from_bits, round_to_bits
from neocpu.schedules.convolutions.conv2d_reference import Operands, conv2d, random_operands
from neocpu.schedules.convolutions.dot_products import conv2d_dot as template
from neocpu.schedules.tir.bfloat16 import bits_of, rounded
from neocpu.schedules.tir.builder import build_kernel
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import DotScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

HASWELL = parse_target("llvm -mcpu=haswell")
ZEN4 = parse_target("llvm -mcpu=znver4")
RAPIDS = parse_target("llvm -mcpu=sapphirerapids")
NEOVERSE = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+bf16")
CORTEX = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
SKYLAKE = parse_target("llvm -mcpu=skylake-avx512")

HALVES = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
TO_FLOAT = replace(HALVES, output="float32")
BIAS, RELU = EpilogueOp("bias_add"), EpilogueOp("relu")
SPILL = r"\b(?:str\s+q|vmov[adu]\w+\s+%[yz]mm\d+, )"
RESIDUAL = (BIAS, EpilogueOp("add"), RELU)

WORKLOADS = [
    typed(PIXELS, HALVES, (BIAS, RELU)),
    typed(WHOLE_PIXELS, HALVES, RESIDUAL),
    typed(STRIDED_PIXELS, TO_FLOAT, RESIDUAL),
    typed(ONE_PIXEL, TO_FLOAT, (BIAS,)),
    typed(WINDOW, HALVES, (BIAS,)),
    typed(DILATED, HALVES, (RELU,)),
    typed(WIDE_STRIDES, HALVES),
    typed(CUBIC, HALVES, RESIDUAL),
]


def check(workload, scheme, threads=1, target=HASWELL, operands=None):
    """Run a kernel, by default one that widens."""
    return check_rounded(workload, scheme, threads, target, operands)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_errors_come_only_from_rounding_stored_values(workload):
    check_first_and_last(check, template, workload, HASWELL)


@needs.instruction_set("avx512bf16")
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(2)
def test_instructions_of_bfloat16(workload):
    """The kernel has instructions for products and for rounding."""
    check_first_and_last(check, template, workload, ZEN4)
    if workload.numerics == HALVES:
        code = compile_for(template.lower(workload, template.space(workload, ZEN4)[0], ZEN4), ZEN4)
        assert "vcvtneps2bf16" in code


@pytest.mark.parametrize(
    "scheme",
    [
        DotScheme(64, 16, reg_n=3, unroll_ker=True, reg_oh=2, reg_oc=16),
        DotScheme(16, 64, reg_n=1, unroll_ker=False, reg_oh=1, reg_oc=8),
        DotScheme(2, 8, reg_n=2, unroll_ker=False, reg_oh=4, reg_oc=16),
    ],
    ids=str,
)
@needs.one_in(3)
def test_tiles_and_blocks_that_divide_nothing(scheme):
    check(WORKLOADS[4], scheme, threads=2)
    check(replace(WORKLOADS[4], padding=(0, 2, 3, 1)), scheme)


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.numerics == HALVES], ids=str)
def test_errors_are_within_two_to_the_minus_eight_of_float32(workload):
    """The bound is norm-wise, and includes rounded operands, as promised for each operator."""
    exact = random_operands(replace(workload, numerics=Numerics.uniform("float32")), 2)
    halves = [round_to_bits(each).view(ml_dtypes.bfloat16) for each in (exact.data, exact.weights)]
    residual = [
        round_to_bits(each).view(ml_dtypes.bfloat16) if each.ndim == 4 else each
        for each in exact.epilogue
    ]
    operands = Operands(*halves, tuple(residual))
    got = check(workload, template.space(workload, HASWELL)[0], operands=operands)
    assert relative_error(got, conv2d(workload, exact)) <= 2.0**-8


def test_infinities_keep_to_their_windows():
    workload = replace(WORKLOADS[4], epilogue=())
    operands = random_operands(workload, 1)
    operands.data[0, 3, 2, 2] = np.inf
    scheme = template.space(workload, HASWELL)[0]
    (got,) = written(workload, scheme, operands, 1, HASWELL, (0,))
    lanes = scheme.out_layout.unpack(got, workload.out_channels).astype(np.float32)
    assert not np.isfinite(lanes[0, :, 1:4, 1:4]).any()
    assert np.isfinite(np.delete(lanes, [1, 2, 3], axis=2)).all()
    assert (got.reshape(-1, got.shape[-1])[:, 1:].astype(np.float32) == 0).any()  # padded lanes
    assert not np.isnan(got[0, -1, ..., workload.out_channels % scheme.oc_bn :]).any()


@pytest.mark.parametrize(
    ("target", "instruction"),
    [(ZEN4, "vdpbf16ps"), (RAPIDS, "vdpbf16ps"), (NEOVERSE, "bfdot")],
    ids=["znver4", "sapphirerapids", "neoverse-n1"],
)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)], ids=str)
def test_hot_loops_are_the_instruction_and_its_loads(target, instruction, kernel):
    padding = PAD if kernel == (3, 3) else (0, 0, 0, 0)
    workload = conv_workload(1, 256, 14, 14, 256, kernel, padding=padding, numerics=HALVES)
    workload = replace(workload, epilogue=RESIDUAL)
    scheme = template.space(workload, target)[0]
    text = compile_for(template.lower(workload, scheme, target), target)
    hottest = max(re.split(r"\n\.LBB", text), key=lambda block: block.count(instruction))
    hottest = hottest.split("\n\tj")[0]  # to the jump back
    dots = hottest.count(instruction)
    sums = scheme.reg_oh * scheme.reg_n * scheme.reg_oc // target.dot_unit(HALVES).lanes
    assert dots >= sums
    assert dots % sums == 0
    assert not re.findall(r"\b(?:vfmadd|fmla)", hottest)
    # LLVM loads the rows of NEON's tiles far ahead, and spills some of them.
    assert len(re.findall(SPILL, hottest)) <= (dots // 6 if target is NEOVERSE else 0), "spilt"


@pytest.mark.parametrize("target", [ZEN4, RAPIDS], ids=lambda target: target.mcpu)
def test_one_vector_of_channels_broadcasts_pixels_from_memory(target):
    """A separate load for each product would take a fifth longer."""
    workload = conv_workload(1, 784, 7, 7, 784, (1, 1), numerics=HALVES)
    scheme = replace(template.space(workload, target)[0], reg_n=25, reg_oh=1, reg_oc=16)
    text = compile_for(template.lower(workload, scheme, target), target)
    dots = re.findall(r"vdpbf16ps\s+(.*), %zmm", text)
    assert len(dots) >= 25
    assert all("{1to16}" in operands for operands in dots)


@pytest.mark.parametrize("target", [HASWELL, SKYLAKE, CORTEX], ids=lambda target: target.mcpu)
def test_other_cpus_widen_and_spill_little(target):
    workload = conv_workload(1, 256, 14, 14, 256, (3, 3), padding=PAD, numerics=HALVES)
    scheme = template.space(workload, target)[0]
    text = compile_for(template.lower(workload, scheme, target), target)
    assert "bf16" not in text
    assert "bfdot" not in text
    fused = "fmla" if target.isa == "neon" else "vfmadd"
    hottest = max(re.split(r"\n\.LBB", text), key=lambda block: block.count(fused))
    hottest = hottest.split("\n\tj")[0]
    sums = scheme.reg_oh * scheme.reg_n * scheme.reg_oc // target.dot_unit(HALVES).lanes
    assert hottest.count(fused) % (2 * sums) == 0 < hottest.count(fused)
    # LLVM loads some vectors ahead; of NEON's rows more.
    ahead = hottest.count(fused) // (12 if target is CORTEX else 32)
    assert len(re.findall(SPILL, hottest)) <= ahead, "spilt"


def test_blocks_fold():
    check_folds(check, template, WORKLOADS[4], HASWELL, (8, 48), refused=[(3, 16)])


def test_bits_are_rounded_as_numpy_does():
    """All bfloat16 numbers and midpoints between them are tested; NaN stays NaN."""
    every = np.arange(1 << 16, dtype=np.uint32) << 16
    numbers = np.concatenate([every | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    numbers = numbers.view(np.float32)
    shape = numbers.shape

    def body(data, output):
        bits = bits_of(output)
        with T.serial(shape[0] // 16) as i, T.vectorized(16) as lane:
            T.buffer_store(bits, rounded(data[i * 16 + lane]), [i * 16 + lane])

    func = build_kernel((("data", shape, "float32"), ("output", shape, "bfloat16")), body)
    (got,) = call(build(func), [numbers], [np.zeros(shape, ml_dtypes.bfloat16)])
    nan = np.isnan(numbers)
    normal = ~nan & ((np.abs(numbers) >= np.finfo(np.float32).tiny) | (numbers == 0))
    np.testing.assert_array_equal(got.view(np.uint16)[normal], round_to_bits(numbers)[normal])
    assert np.isnan(from_bits(got)[nan]).all()
