"""Kernels for CPUs with VNNI, AVX-VNNI, AVX-512, SDOT and USDOT, executed in emulators.

What they compute is compared with the reference: integers to the last bit. The emulated CPU lacks
what the target lacks, tensors lie between inaccessible pages, and inputs cannot be written to.
"""

import random
from dataclasses import replace
from itertools import cycle

import emulated_kernel
import needs
import numpy as np
import pytest
from conv_workloads import (
    DILATED,
    FEW_CHANNELS,
    ONE_PIXEL,
    PAD,
    PICTURE,
    SMALL_CUBIC,
    STRIDED_PIXELS,
    conv_workload,
    typed,
)
from emulated_cpu import EmulationError

from neocpu.foundation.bfloat16 import array_dtype
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    Operands,
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics, Quantisation
from neocpu.schedules.vocabulary.scheme import MatrixScheme, SplitScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

ARM = {
    name: parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={name}")
    for name in emulated_kernel.ARM_CPUS
}
CPUS = {name: parse_target(f"llvm -mcpu={name}") for name in emulated_kernel.CPUS} | ARM

INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
SMALL_WEIGHTS = replace(INTEGERS, int16_sums=4)
ASYMMETRIC = replace(INTEGERS, quantised=(("data", Quantisation("tensor", symmetric=False)),))
SCALED = (EpilogueOp("bias_add"), EpilogueOp("rescale"))
STORED = (EpilogueOp("round"), EpilogueOp("clip", (0.0, 255.0)))
PLAIN = (*SCALED, *STORED)
RESIDUAL = (*SCALED, EpilogueOp("add"), EpilogueOp("relu"), *STORED)
ZERO_POINT = (*SCALED, EpilogueOp("round"), EpilogueOp("bias_add"), *STORED)
RECTIFIED = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))
NORMALISED = (EpilogueOp("scale"), EpilogueOp("bias_add"), EpilogueOp("relu"))

# Of every CPU.
FEW = [
    typed(FEW_CHANNELS, ASYMMETRIC, ZERO_POINT),
    typed(conv_workload(1, 64, 9, 5, 61, (1, 1)), INTEGERS, RESIDUAL),
    typed(conv_workload(1, 64, 5, 5, 67, (1, 1)), SMALL_WEIGHTS, PLAIN),
]
MORE = [
    typed(STRIDED_PIXELS, INTEGERS, PLAIN),
    typed(ONE_PIXEL, replace(INTEGERS, output="float32"), SCALED),
    typed(DILATED, ASYMMETRIC, PLAIN),
    typed(conv_workload(1, 64, 5, 7, 96, (3, 3), groups=2), INTEGERS, PLAIN),
    # ResNet-50's layers with fewer channels and pixels.
    typed(PICTURE, INTEGERS, PLAIN),
    typed(conv_workload(1, 128, 7, 7, 96, (3, 3), padding=PAD), INTEGERS, PLAIN),
    typed(conv_workload(1, 96, 8, 8, 64, (3, 3), stride=(2, 2), padding=PAD), INTEGERS, PLAIN),
    typed(conv_workload(1, 64, 7, 7, 256, (1, 1)), INTEGERS, RESIDUAL),
    typed(SMALL_CUBIC, INTEGERS, PLAIN),
    typed(conv_workload(1, 36, 9, 11, 36, (3, 3), padding=PAD, groups=9), INTEGERS, RESIDUAL),
]
HALVES = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
WIDENED = replace(HALVES, weights="float32")
BFLOAT16 = [
    typed(conv_workload(1, 19, 9, 11, 20, (3, 3), padding=PAD), HALVES, RECTIFIED),
    typed(conv_workload(1, 67, 5, 7, 48, (1, 1)), replace(HALVES, output="float32"), RECTIFIED),
    typed(DILATED, HALVES),
    typed(SMALL_CUBIC, HALVES, RECTIFIED),
]
# Channels fill the tiles: shorter rows, strides, dilation, batches.
IN_TILES = [
    typed(
        conv_workload(2, 128, 9, 21, 48, (3, 3), stride=(2, 2), padding=PAD), ASYMMETRIC, ZERO_POINT
    ),
    typed(conv_workload(1, 61, 17, 5, 83, (3, 1), padding=(1, 0, 1, 0), dilation=(2, 1)), INTEGERS),
    conv_workload(1, 64, 6, 40, 24, (5, 5), padding=(2, 2, 2, 2), numerics=HALVES),
    conv_workload(3, 96, 4, 7, 64, (1, 1), numerics=HALVES, epilogue=RECTIFIED),
    conv_workload(1, 47, 5, 3, 33, (1, 1), stride=(2, 1), numerics=HALVES, epilogue=RECTIFIED),
    # Rows that are joined, at stride 1 and by phases.
    typed(conv_workload(2, 64, 7, 7, 48, (3, 3), padding=PAD), ASYMMETRIC, ZERO_POINT),
    conv_workload(1, 70, 6, 9, 33, (2, 4), padding=(0, 3, 2, 1), dilation=(2, 1), numerics=HALVES),
    conv_workload(2, 32, 13, 15, 40, (3, 3), stride=(2, 3), padding=PAD, numerics=HALVES),
    conv_workload(1, 96, 14, 13, 40, (1, 1), stride=(2, 2), numerics=HALVES, epilogue=RECTIFIED),
    # Groups, several in a line of channels, and one in several.
    conv_workload(1, 64, 7, 9, 64, (3, 3), padding=PAD, groups=4, numerics=HALVES),
    typed(conv_workload(2, 128, 6, 7, 64, (1, 1), groups=4), INTEGERS, PLAIN),
    conv_workload(1, 128, 5, 17, 64, (3, 3), stride=(2, 2), groups=2, numerics=HALVES),
    # Pictures, whose windows' columns lie side by side.
    typed(replace(PICTURE, batch=2), ASYMMETRIC, ZERO_POINT),
    replace(PICTURE, batch=2, numerics=HALVES, epilogue=RECTIFIED),
    conv_workload(1, 1, 9, 13, 17, (3, 3), padding=PAD, numerics=HALVES),
]
# Float32 workloads, which tiles multiply in parts.
SPLIT = [
    conv_workload(2, 64, 7, 7, 40, (3, 3), padding=PAD, epilogue=RECTIFIED),
    conv_workload(1, 48, 13, 15, 40, (3, 3), stride=(2, 3), padding=PAD, epilogue=RECTIFIED),
    conv_workload(2, 61, 7, 11, 40, (3, 3), padding=PAD, epilogue=RECTIFIED),
    conv_workload(1, 96, 9, 8, 33, (1, 1), stride=(2, 2), epilogue=RECTIFIED),
    conv_workload(2, 32, 9, 21, 48, (3, 3), stride=(2, 2), padding=PAD, epilogue=RECTIFIED),
    conv_workload(1, 48, 6, 9, 24, (5, 3), stride=(1, 1), padding=(2, 1, 0, 3), dilation=(1, 2)),
    conv_workload(1, 128, 1, 1, 70, (1, 1)),
    # Pictures.
    replace(PICTURE, batch=2, epilogue=RECTIFIED),
    conv_workload(1, 1, 9, 13, 17, (3, 3), stride=(1, 1), padding=PAD),
    conv_workload(
        1,
        4,
        11,
        10,
        33,
        (4, 8),
        stride=(2, 3),
        padding=(0, 1, 2, 5),
        dilation=(2, 1),
        epilogue=RECTIFIED,
    ),
    conv_workload(1, 3, 8, 5, 24, (2, 2), stride=(2, 2)),
    conv_workload(1, 70, 9, 8, 33, (1, 1), prologue=NORMALISED, epilogue=RECTIFIED),
    conv_workload(2, 35, 9, 8, 33, (1, 1), stride=(2, 1), prologue=NORMALISED),
]
# On ARM sums begin with the bias, which no step adds again.
IN_GROUPS = [
    conv_workload(
        1, 32, 9, 11, 32, (3, 3), padding=PAD, groups=groups, numerics=WIDENED, epilogue=RECTIFIED
    )
    for groups in (32, 16)
]
FLOATS = [
    conv_workload(1, 32, 9, 11, 40, (3, 3), padding=PAD, epilogue=RECTIFIED),
    conv_workload(1, 35, 6, 7, 48, (1, 1), epilogue=RECTIFIED),
    conv_workload(1, 32, 9, 11, 32, (3, 3), padding=PAD, groups=32, epilogue=RECTIFIED),
    conv_workload(1, 64, 5, 7, 64, (3, 3), padding=PAD, groups=4, epilogue=RECTIFIED),
    conv_workload(4, 16, 16, 16, 16, (3, 3), padding=PAD, groups=4, epilogue=RECTIFIED),
]


def leading(workload, target):
    """Return the scheme with the best estimate of each template that computes a workload."""
    schemes = registry.schemes(workload, target)
    return list({scheme.template: scheme for scheme in reversed(schemes)}.values())


def output(workload, scheme, target, operands, folder, threads=2):
    """Return what the kernel of a scheme, for so many threads, writes on the target's CPU."""
    weights = registry.pack_weights(operands.weights, workload, scheme)
    arguments = kernel_arguments(workload, scheme, operands, weights)
    shape, dtype = registry.argument_shapes(workload, scheme)[-1]
    func = registry.lower(workload, scheme, target, threads)
    unwritten = np.full(shape, 1, array_dtype(dtype))
    (got,) = emulated_kernel.run(func, target, arguments, [unwritten], folder)
    return got


def check(workload, schemes, cpu, folder, threads=(2,)):
    """Compare kernels with the reference; numbers of threads are taken in turn."""
    operands = random_operands(workload, 1)
    expected = conv2d(workload, operands)
    assert np.unique(expected).size > min(20, expected.size // 20)  # neither clipped nor all equal
    for scheme, number in zip(schemes, cycle(threads), strict=False):
        got = output(workload, scheme, CPUS[cpu], operands, folder, number)
        wrong = wrong_answer(scheme, got, expected, reads=workload.numerics.data)
        assert wrong is None, (scheme, number)


def on(cpu, *rest):
    """Return the parameters of a test that is skipped where the CPU's emulator is not installed."""
    if cpu in ARM:
        marks = (needs.programs(emulated_kernel.CROSS, emulated_kernel.QEMU),)
    else:
        package = needs.package("bochscpu", "bochscpu-python")
        marks = (needs.machine("x86_64"), package, needs.programs("cc"))
    return pytest.param(cpu, *rest, marks=marks)


@pytest.mark.parametrize(
    ("cpu", "workload"),
    [
        *(on(cpu, workload) for cpu in CPUS for workload in FEW),
        *(on(cpu, workload) for cpu in ("znver4", "alderlake", *ARM) for workload in MORE),
        *(on("sapphirerapids", workload) for workload in (*MORE, *IN_TILES)),
        *(on("znver4", workload) for workload in FLOATS),
        *(on("sapphirerapids", workload) for workload in (*FLOATS, *SPLIT)),
        *(on(cpu, workload) for cpu in ("znver4", "sapphirerapids", *ARM) for workload in BFLOAT16),
    ],
    ids=str,
)
@needs.one_in(3)
def test_kernels_agree_with_the_reference(cpu, workload, tmp_path):
    check(workload, leading(workload, CPUS[cpu]), cpu, tmp_path)


@pytest.mark.parametrize(
    "workload",
    [
        typed(conv_workload(1, 64, 7, 14, 48, (3, 3), padding=PAD), INTEGERS, RESIDUAL),
        conv_workload(1, 32, 9, 14, 40, (3, 3), padding=PAD, numerics=HALVES, epilogue=RECTIFIED),
        conv_workload(1, 32, 5, 21, 40, (3, 3), stride=(2, 2), padding=PAD, epilogue=RECTIFIED),
    ],
    ids=str,
)
@pytest.mark.parametrize("cpu", [on("sapphirerapids")])
def test_register_tiles_of_several_rows_agree(cpu, workload, tmp_path):
    found = [
        scheme
        for scheme in registry.schemes(workload, CPUS[cpu])
        if isinstance(scheme, MatrixScheme | SplitScheme) and scheme.reg_oh > 1
    ]
    tallest = max(scheme.reg_oh for scheme in found)
    check(workload, [found[0], next(s for s in found if s.reg_oh == tallest)], cpu, tmp_path)


@pytest.mark.parametrize(
    ("cpu", "workload"),
    [on(cpu, workload) for cpu in ("znver4", "neoverse-v1") for workload in IN_GROUPS],
    ids=str,
)
def test_kernels_of_bfloat16_groups_agree(cpu, workload, tmp_path):
    check(workload, leading(workload, CPUS[cpu]), cpu, tmp_path)


# Windows over depth slices, and rows of several blocks.
WIDE = [
    conv_workload(1, 64, 5, 41, 80, (3, 3), padding=PAD, numerics=INTEGERS, epilogue=RESIDUAL),
    conv_workload(
        1, 96, 7, 33, 48, (3, 2), stride=(1, 2), padding=PAD, numerics=HALVES, epilogue=RECTIFIED
    ),
    conv_workload(1, 64, 12, 9, 96, (1, 1), numerics=INTEGERS, epilogue=PLAIN),
    conv_workload(1, 64, 5, 41, 80, (3, 3), padding=PAD, epilogue=RECTIFIED),
    conv_workload(2, 64, 12, 9, 96, (1, 1), epilogue=RECTIFIED),
]


@pytest.mark.parametrize("cpu", [on("sapphirerapids"), on("neoverse-v1")])
@pytest.mark.parametrize("workload", WIDE, ids=str)
@needs.one_in(2)
def test_kernels_of_other_schemes_and_many_threads_agree(cpu, workload, tmp_path):
    several = ("conv2d_matrix", "conv2d_split")
    found = [s for s in registry.schemes(workload, CPUS[cpu]) if s.template in several]
    chosen = random.Random(str(workload)).sample(found, min(3, len(found)))
    check(workload, chosen, cpu, tmp_path, (1, 3, 16))


@pytest.mark.parametrize("cpu", [on("sapphirerapids"), on("neoverse-v1")])
@pytest.mark.parametrize("numerics", [INTEGERS, HALVES], ids=lambda each: each.data)
def test_kernels_of_row_major_matrices_agree(cpu, numerics, tmp_path):
    workload = conv_workload(1, 448, 1, 37, 96, (1, 1), numerics=numerics)
    first = next(s for s in registry.schemes(workload, CPUS[cpu]) if s.template == "conv2d_matrix")
    scheme = registry.fold(workload, first, DataLayout(448), DataLayout(96), CPUS[cpu])
    assert (scheme.ic_bn, scheme.oc_bn) == (448, 96)
    check(workload, [scheme], cpu, tmp_path)


@pytest.mark.parametrize(
    "cpu", [on("znver4"), on("alderlake"), on("sapphirerapids"), *map(on, ARM)]
)
@pytest.mark.parametrize("weight", [-128, 127])
def test_no_sum_saturates(cpu, weight, tmp_path):
    numerics = replace(INTEGERS, output="float32")
    workload = conv_workload(1, 256, 3, 3, 16, (1, 1), numerics=numerics, epilogue=SCALED)
    operands = Operands(
        np.full(workload.input_shape, 255, np.uint8),
        np.full(workload.kernel_shape, weight, np.int8),
        (np.zeros(16, np.int32), np.ones(16, np.float32)),
    )
    for scheme in leading(workload, CPUS[cpu]):
        got = output(workload, scheme, CPUS[cpu], operands, tmp_path)
        assert np.all(got == weight * 255 * 256)


@pytest.mark.parametrize(
    ("compiled", "executed"),
    [
        on("cascadelake", "skylake-avx512"),  # VNNI
        on("znver4", "alderlake"),  # AVX-512
        on("alderlake", "cascadelake"),  # AVX-VNNI
    ],
)
def test_a_cpu_has_no_more_than_it_has(compiled, executed, tmp_path, monkeypatch):
    cpus = {**emulated_kernel.CPUS, compiled: emulated_kernel.CPUS[executed]}
    monkeypatch.setattr(emulated_kernel, "CPUS", cpus)
    workload, target = FEW[1], CPUS[compiled]
    (scheme,) = leading(workload, target)
    with pytest.raises(EmulationError, match=r"an instruction that this CPU lacks \(6\) before 0x"):
        output(workload, scheme, target, random_operands(workload, 1), tmp_path)


@pytest.mark.parametrize("cut", [0, -1])
@pytest.mark.parametrize("cpu", [on("alderlake"), on("cortex-a76")])
def test_tensors_end_where_memory_does(cut, cpu, tmp_path):
    """A kernel reads or writes beyond an argument that is a page too short."""
    target, workload = CPUS[cpu], replace(FEW[1], batch=12)
    (scheme,) = leading(workload, target)
    shapes = registry.argument_shapes(workload, scheme)
    arrays = [np.zeros(shape, dtype) for shape, dtype in shapes]
    arrays[cut] = arrays[cut].reshape(-1)[:-4096]
    func = registry.lower(workload, scheme, target)
    with pytest.raises(EmulationError, match=r"a page fault \(14\) before|signal 11"):
        emulated_kernel.run(func, target, arrays[:-1], arrays[-1:], tmp_path)
