"""1x1 convolution as a matrix product against a naive reference, over awkward sizes."""

import random
from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import EPILOGUES, check_template
from conv_workloads import conv_workload
from kernel_harness import FOREIGN, HOST, check_folds, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions import conv2d_pointwise as template
from neocpu.schedules.convolutions.pointwise_tiling import Tiling
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import PointwiseScheme, SplitScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

LANES = HOST.lanes("float32")
AVX2 = parse_target("llvm -mcpu=znver3")
AVX512 = parse_target("llvm -mcpu=skylake-avx512")
BN_RELU = tuple(EpilogueOp(kind) for kind in ("scale", "bias_add", "relu"))
GATE = (EpilogueOp("gate"),)

WORKLOADS = [
    conv_workload(1, 67, 7, 7, 59, (1, 1)),
    conv_workload(1, 41, 5, 9, 37, (1, 1), stride=(2, 2)),
    conv_workload(1, 33, 6, 5, 29, (1, 1), padding=(1, 0, 2, 3)),
    conv_workload(3, 19, 3, 5, 23, (1, 1)),
    conv_workload(2, 40, 4, 7, 31, (1, 1), stride=(2, 3), padding=(0, 1, 1, 0), prologue=BN_RELU),
    conv_workload(1, 35, 11, 3, 48, (1, 1), prologue=GATE),
    conv_workload(3, 35, 2, 3, 17, (1, 1), prologue=(*GATE, EpilogueOp("silu"))),
    conv_workload(1, 50, 1, 1, 40, (1, 1)),  # one pixel
    conv_workload(17, 17, 17, 17, 17, (1, 1), prologue=GATE),
    conv_workload(8, 64, 8, 8, 64, (1, 1)),
]


def scheme_of(ic=LANES, oc=LANES, reg_n=3, vectors=2, passes=2, strip=2, split=False):
    return PointwiseScheme(
        ic,
        oc,
        reg_n=reg_n,
        reg_oc=vectors * LANES,
        ic_block=passes * LANES,
        strip=strip,
        oc_split=split,
    )


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(2)
def test_matches_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert len(set(schemes)) == len(schemes) > 0
    for scheme in random.Random(0).sample(schemes, min(2, len(schemes))):
        check_template(workload, scheme)
    check_template(workload, schemes[0], threads=3)


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
@pytest.mark.parametrize("strip", [1, 2, 50])
@pytest.mark.parametrize("prologue", [(), BN_RELU], ids=["stored", "packed"])
@needs.one_in(2)
def test_tasks_strips_and_passes_that_divide_nothing(prologue, strip, split):
    """Five passes over the input channels, five blocks of output channels, nine register tiles."""
    workload = conv_workload(1, 9 * LANES - 3, 5, 5, 9 * LANES - 1, (1, 1), prologue=prologue)
    for threads in (1, 3):
        check_template(workload, scheme_of(strip=strip, split=split), threads)


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@needs.one_in(2)
def test_epilogues(epilogue, split):
    channels = 2 * LANES
    for prologue in ((), BN_RELU):
        workload = conv_workload(
            2, channels, 3, 4, 3 * LANES - 1, (1, 1), epilogue=epilogue, prologue=prologue
        )
        for passes in (1, 2):
            check_template(workload, scheme_of(passes=passes, split=split), threads=2)


@pytest.mark.parametrize("kind", ["relu", "clip", "leaky_relu", "prelu", "sigmoid", "tanh"])
def test_prologues_of_every_operand(kind):
    args = {"clip": (-0.5, 0.75), "leaky_relu": (0.1,)}.get(kind, ())
    workload = conv_workload(
        1, LANES + 3, 3, 3, LANES, (1, 1), padding=(1, 1, 1, 1), prologue=(EpilogueOp(kind, args),)
    )
    check_template(workload, scheme_of(vectors=1))


@pytest.mark.parametrize(
    "scheme",
    [
        scheme_of(ic=2 * LANES, oc=4 * LANES, vectors=1, passes=1),
        scheme_of(ic=4 * LANES, oc=2 * LANES, vectors=3, reg_n=4),
        scheme_of(ic=LANES, oc=3 * LANES, vectors=2, reg_n=1, strip=50),
        scheme_of(ic=3 * LANES, oc=LANES, vectors=4, reg_n=2, split=True),
    ],
    ids=str,
)
def test_any_blocks_with_any_register_tile(scheme):
    workload = conv_workload(1, 5 * LANES - 2, 4, 5, 5 * LANES - 1, (1, 1))
    check_template(workload, scheme, threads=2)
    check_template(replace(workload, prologue=GATE), scheme, threads=2)


@pytest.mark.parametrize("blocks", [(LANES, 4 * LANES), (3 * LANES, 2 * LANES)])
def test_folds_between_any_blocks_of_whole_vectors(blocks):
    workload = conv_workload(1, 4 * LANES, 5, 5, 4 * LANES, (1, 1))
    refused = [(LANES // 2, LANES), (LANES, LANES // 2)]
    check_folds(check_template, template, workload, HOST, blocks, refused)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_vectors_of_other_widths_match_naive(target):
    """The schedule is that of another target, in this machine's instructions."""
    for workload in (WORKLOADS[0], WORKLOADS[4]):
        check_template(workload, template.space(workload, target)[0], target=target)


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=lambda t: t.mcpu)
def test_sums_stay_in_registers(target):
    workload = conv_workload(1, 256, 7, 7, 256, (1, 1))
    scheme = template.space(workload, target)[0]
    text = compile_for(template.lower(workload, scheme, target), target)
    hottest = max(text.split("\n.LBB"), key=lambda block: block.count("vfmadd"))
    hottest = hottest.split("\n\tj")[0]  # to the jump back
    register = "zmm" if target is AVX512 else "ymm"
    lanes = target.lanes("float32")
    sums = scheme.reg_n * scheme.reg_oc // lanes
    steps = 1 if target is AVX512 else lanes  # that are written out
    assert hottest.count("vfmadd") == steps * sums
    stores = [line for line in hottest.splitlines() if line.rstrip().endswith(")")]
    assert not [line for line in stores if register in line and "vmov" in line]


@pytest.mark.parametrize(
    "change",
    [{"kernel": (3, 3)}, {"kernel": (1, 3)}, {"groups": 2},
     {"numerics": Numerics.uniform("float16")}, {"in_channels": LANES - 1},
     {"out_channels": LANES - 1}],
    ids=str,
)  # fmt: skip
def test_does_not_apply(change):
    workload = replace(conv_workload(1, 2 * LANES, 9, 9, 2 * LANES, (1, 1)), **change)
    assert not template.applies(workload, HOST)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_a_prologue_leaves_no_other_template_in_vectors(workload):
    found = registry.schemes(workload, HOST)
    templates = {each.template for each in found if not isinstance(each, SplitScheme)}
    assert template.TEMPLATE.name in templates
    assert (templates == {template.TEMPLATE.name}) == bool(workload.prologue)


def test_small_blocks_have_a_scheme_and_few_have_more():
    workload = conv_workload(1, 512, 7, 7, 2048, (1, 1))
    schemes = template.space(workload, AVX2)
    assert {(s.ic_bn, s.oc_bn) for s in schemes} == {(i, o) for i in (8, 16) for o in (8, 16)}
    assert len(schemes) <= 40
    assert len({replace(s, ic_bn=8, oc_bn=8) for s in schemes}) > 3


@pytest.mark.parametrize(
    "workload",
    [
        # 49 pixels: rows of seven leave a direct tile's registers empty.
        conv_workload(1, 2048, 7, 7, 512, (1, 1)),
        conv_workload(1, 1024, 14, 14, 2048, (1, 1), stride=(2, 2)),
        conv_workload(1, 256, 27, 27, 32, (1, 1)),
    ],
    ids=str,
)
def test_estimates_prefer_it_to_direct_where_rows_do_not_fill_register_tiles(workload):
    def best(module):
        return min(module.estimate(workload, s, AVX2) for s in module.space(workload, AVX2))

    assert best(template) < 0.9 * best(conv2d_direct)


def test_weights_of_a_pass_fit_l1():
    workload = conv_workload(1, 2048, 7, 7, 512, (1, 1))
    for scheme in template.space(workload, AVX2):
        assert scheme.ic_block * scheme.reg_oc * 4 <= AVX2.l1d
        assert Tiling(workload, scheme, 8).passes >= 2


def test_a_prologue_costs_something_and_less_than_a_pass_over_memory():
    workload = conv_workload(1, 192, 56, 56, 128, (1, 1))
    plain, fused = (
        min(template.estimate(w, s, AVX2) for s in template.space(w, AVX2))
        for w in (workload, replace(workload, prologue=BN_RELU))
    )
    moved = 2 * 4 * np.prod(workload.input_shape) / 20e9
    assert plain < fused < plain + moved


def test_every_task_is_counted_once():
    workload = conv_workload(1, 64, 9, 9, 24 * 8, (1, 1))
    for threads in (1, 2, 3, 5):
        for split in (False, True):
            scheme = PointwiseScheme(8, 8, reg_n=4, reg_oc=16, ic_block=64, strip=3, oc_split=split)
            tiling = Tiling(workload, scheme, 8, threads)
            assert tiling.tasks == tiling.strips * tiling.groups
            assert 1 / threads <= tiling.busiest_share <= 1
            assert (tiling.groups == 1) == (threads == 1 or not split)


def test_passes_are_of_whole_vectors_though_channels_are_not():
    workload = conv_workload(1, 3 * LANES + 1, 28, 28, 4 * LANES, (1, 1))
    schemes = template.space(workload, HOST)
    assert schemes
    assert all(scheme.ic_block % LANES == 0 for scheme in schemes)


def test_pixels_of_a_register_tile_are_packed_in_one_loop():
    # LLVM would unroll a loop for each pixel, which takes longer than everything else.
    def loops(reg_n):
        scheme = scheme_of(reg_n=reg_n, passes=1, split=True)
        workload = conv_workload(
            1, 4 * LANES, 28, 28, 4 * LANES, (1, 1), stride=(2, 2), padding=(0, 0, 0, 0)
        )
        return template.lower(workload, scheme, HOST, 2).script().count("in range(")

    assert loops(7) == loops(3)
