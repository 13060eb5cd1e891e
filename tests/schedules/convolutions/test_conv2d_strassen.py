"""1x1 convolution by seven products against a naive reference, over awkward sizes."""

from dataclasses import replace

import numpy as np
import pytest
from conv_reference import EPILOGUES, check_template, computed, relative_error
from conv_workloads import conv_workload
from kernel_harness import FOREIGN, HOST, check_folds, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_pointwise
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands
from neocpu.schedules.convolutions.strassen import conv2d_strassen as template
from neocpu.schedules.vocabulary.accuracy import EVERY_TILE, NO_TILES
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import StrassenScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

LANES = HOST.lanes("float32")
AVX512 = parse_target("llvm -mcpu=skylake-avx512")
ONE = conv_workload(1, 5 * LANES + 3, 7, 7, 59, (1, 1), epilogue=EPILOGUES[1])
SEVERAL = conv_workload(3, 4 * LANES + 1, 3, 5, 4 * LANES - 3, (1, 1), epilogue=EPILOGUES[2])
PACKED = replace(ONE, prologue=tuple(map(EpilogueOp, ("scale", "bias_add", "relu"))))
GATED = replace(SEVERAL, prologue=(EpilogueOp("gate"),))
EVEN = conv_workload(1, 6 * LANES, 4, 6, 8 * LANES, (1, 1), epilogue=EPILOGUES[0])


def scheme_of(half=2, reg_n=3, vectors=1, strip=2, split=False, ic=LANES, oc=LANES):
    return StrassenScheme(
        ic,
        oc,
        reg_n=reg_n,
        reg_oc=vectors * LANES,
        ic_half=half * LANES,
        strip=strip,
        oc_split=split,
    )


@pytest.mark.parametrize("workload", [ONE, SEVERAL, GATED], ids=str)
def test_matches_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert len(set(schemes)) == len(schemes) > 0
    check_template(workload, schemes[0], threads=2)


@pytest.mark.parametrize(
    ("workload", "scheme", "threads"),
    [
        (ONE, scheme_of(), 3),
        (PACKED, scheme_of(half=2, reg_n=4, split=True, ic=2 * LANES), 2),
        (ONE, scheme_of(half=1, reg_n=5, strip=1, split=True, ic=2 * LANES, oc=3 * LANES), 2),
        (SEVERAL, scheme_of(reg_n=2, vectors=2, split=True), 2),
        (EVEN, scheme_of(half=3, reg_n=4, vectors=2, ic=4 * LANES, oc=2 * LANES), 1),
        (EVEN, scheme_of(half=3, reg_n=12, strip=50, split=True), 16),
    ],
    ids=str,
)
def test_tasks_blocks_and_halves_that_divide_nothing(workload, scheme, threads):
    check_template(workload, scheme, threads)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_vectors_of_other_widths_match_naive(target):
    """The schedule is that of another target, in this machine's instructions."""
    workload = conv_workload(1, 71, 5, 5, 61, (1, 1), epilogue=EPILOGUES[3])
    check_template(workload, template.space(workload, target)[0], target=target)


def test_folds_between_any_blocks_of_whole_vectors():
    blocks, refused = (2 * LANES, 4 * LANES), [(LANES // 2, 4 * LANES)]
    check_folds(check_template, template, EVEN, HOST, blocks, refused)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": (3, 3)},
        {"stride": (2, 2)},
        {"padding": (0, 1, 0, 0)},
        {"in_channels": 4 * LANES - 1},
        {"out_channels": LANES},
        {"height": 1, "width": 1},
        {"numerics": Numerics(data="uint8", weights="int8", sum="int32", output="uint8")},
    ],
    ids=str,
)
def test_strassen_does_not_apply_to_these_workloads(change):
    assert not template.applies(replace(EVEN, **change), HOST)


def test_errors_are_little_larger_than_direct_and_admitted_only_with_tiles():
    workload = replace(EVEN, in_channels=512, epilogue=())
    operands = random_operands(workload, 1)
    exact = conv2d(workload, replace(operands, data=operands.data.astype(np.float64)))

    def error(module):
        scheme = module.space(workload, HOST)[0]
        return relative_error(computed(workload, scheme, operands), exact)

    assert error(template) < template.ERROR_FACTOR * error(conv2d_pointwise)
    schemes = template.space(workload, HOST)
    assert registry.admitted(EVERY_TILE, schemes, workload) == schemes
    assert not registry.admitted(NO_TILES, schemes, workload)


def test_sums_stay_in_registers():
    workload = conv_workload(1, 256, 14, 14, 256, (1, 1))
    scheme = template.space(workload, AVX512)[0]
    text = compile_for(template.lower(workload, scheme, AVX512), AVX512)
    loops = [part.split("\n\tj")[0] for part in text.split("\n.LBB")]
    sums = scheme.reg_n * scheme.reg_oc // AVX512.lanes("float32")
    hot = [loop for loop in loops if loop.count("vfmadd") == sums]
    assert len(hot) == 7
    for loop in hot:
        stored = [line for line in loop.splitlines() if line.rstrip().endswith(")")]
        assert not [line for line in stored if "zmm" in line and "vmov" in line]
