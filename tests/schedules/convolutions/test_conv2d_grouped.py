"""Grouped convolution, a lane per output channel, against a naive reference."""

from dataclasses import replace

import pytest
from conv_reference import EPILOGUES, check_exact, check_template
from conv_workloads import conv_workload
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.in_groups.conv2d_grouped import TEMPLATE as template
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics, Quantisation
from neocpu.schedules.vocabulary.scheme import GroupedScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

HASWELL = FOREIGN[0]  # vectors of eight
ONE = (1, 1, 1, 1)


def grouped(width, groups, height, columns, kernel=(3, 3), batch=1, **options):
    channels = width * groups
    size = (batch, channels, height, columns, channels)
    return conv_workload(*size, kernel, groups=groups, **options)


WORKLOADS = [
    grouped(2, 5, 5, 7, padding=ONE),
    grouped(4, 32, 9, 11, padding=ONE, stride=(2, 2)),
    grouped(4, 3, 7, 7, dilation=(2, 2), padding=(2, 1, 2, 3)),
    grouped(8, 3, 6, 14, padding=ONE),
    grouped(16, 3, 7, 7, padding=ONE),
    grouped(32, 2, 8, 5, (5, 1)),
    grouped(24, 2, 1, 1, (1, 1)),
    grouped(4, 4, 4, 4, padding=ONE),
    grouped(8, 8, 8, 8, padding=ONE),
    grouped(24, 5, 3, 3, padding=ONE),  # blocks of 16 would end within a sixth group
]
BYTES = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
SUMS = (EpilogueOp("bias_add"), EpilogueOp("rescale"))
STORED = (*SUMS, EpilogueOp("quantise", (3.0,)))
RESIDUAL = (*SUMS, EpilogueOp("add"), EpilogueOp("relu"), EpilogueOp("quantise", (0.0,)))
TO_FLOAT = {"numerics": replace(BYTES, output="float32"), "epilogue": SUMS}
WITH_DOT_PRODUCTS = [parse_target(f"llvm -mcpu={name}") for name in ("znver4", "alderlake")]
WORKLOADS_OF_BYTES = [
    grouped(4, 9, 9, 11, padding=ONE, numerics=BYTES, epilogue=STORED),
    grouped(4, 23, 6, 9, (3, 2), 2, stride=(2, 1), padding=ONE, numerics=BYTES, epilogue=RESIDUAL),
    grouped(4, 4, 7, 7, dilation=(2, 2), padding=(2, 1, 2, 3), **TO_FLOAT),
    grouped(4, 16, 1, 1, (1, 1), numerics=BYTES, epilogue=STORED),
    grouped(4, 5, 40, 3, (5, 1), padding=(0, 2, 3, 0), **TO_FLOAT),
]
WIDER_WORKLOADS_OF_BYTES = [
    grouped(8, 11, 9, 12, padding=ONE, numerics=BYTES, epilogue=RESIDUAL),
    grouped(8, 2, 5, 5, (7, 7), stride=(3, 3), padding=(3, 3, 3, 3), **TO_FLOAT),
]


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        *((each, target) for each in WORKLOADS_OF_BYTES for target in WITH_DOT_PRODUCTS),
        *((each, WITH_DOT_PRODUCTS[0]) for each in WIDER_WORKLOADS_OF_BYTES),
    ],
    ids=str,
)
def test_sums_of_bytes_are_exact(workload, target):
    schemes = template.space(workload, target)
    check_exact(workload, schemes[0], 1, target)
    check_exact(workload, schemes[-1], 3, target)


@pytest.mark.parametrize(
    ("workload", "blocks"),
    [
        (grouped(4, 9, 9, 11, padding=ONE, numerics=BYTES, epilogue=STORED), (64, 64)),
        (grouped(4, 23, 5, 6, padding=ONE, numerics=BYTES, epilogue=STORED), (32, 16)),
        (WIDER_WORKLOADS_OF_BYTES[0], (16, 32)),
    ],
    ids=str,
)
def test_folds_of_bytes(workload, blocks):
    zen4, layouts = WITH_DOT_PRODUCTS[0], tuple(map(DataLayout, blocks))
    folded = template.fold(workload, template.space(workload, zen4)[0], *layouts, zen4)
    assert (folded.in_layout, folded.out_layout) == layouts
    check_exact(workload, folded, 2, zen4)


def test_a_record_of_half_a_vector_of_bytes_is_not_used():
    workload, zen4 = WORKLOADS_OF_BYTES[0], WITH_DOT_PRODUCTS[0]
    assert registry.can_compute(workload, GroupedScheme(16, 4, True), zen4)
    assert not registry.can_compute(workload, GroupedScheme(8, 4, True), zen4)


def test_applies_to_bytes_in_words_if_the_padding_is_zero():
    workload, (zen4, alder_lake) = WORKLOADS_OF_BYTES[0], WITH_DOT_PRODUCTS
    assert template.applies(workload, zen4)
    assert template.applies(WIDER_WORKLOADS_OF_BYTES[0], zen4)
    assert not template.applies(WIDER_WORKLOADS_OF_BYTES[0], alder_lake), "a vector is a group"
    assert not template.applies(workload, HASWELL), "no instruction"
    assert not template.applies(grouped(2, 16, 9, 9, numerics=BYTES), zen4), "half words"
    assert not template.applies(grouped(4, 3, 9, 9, numerics=BYTES), zen4), "half a vector"
    around = replace(BYTES, quantised=(("data", Quantisation("tensor", symmetric=False)),))
    assert not template.applies(replace(workload, numerics=around), zen4)
    assert template.applies(replace(workload, numerics=around, padding=(0,) * 4), zen4)


@pytest.mark.parametrize("target", WITH_DOT_PRODUCTS, ids=lambda target: target.mcpu)
def test_bytes_are_multiplied_four_at_a_time(target):
    workload = grouped(4, 32, 56, 56, padding=ONE, numerics=BYTES, epilogue=STORED)
    best = registry.schemes(workload, target)[0]
    assert isinstance(best, GroupedScheme)
    assembly = compile_for(template.lower(workload, best, target), target)
    assert assembly.count("vpdpbusd") >= 3 * best.reg_n


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_schemes_match_naive(workload):
    assert template.applies(workload, HASWELL)
    schemes = template.space(workload, HASWELL)
    assert 0 < len(schemes) <= 12
    for scheme in dict.fromkeys((schemes[0], schemes[-1])):
        check_template(workload, scheme, target=HASWELL)


@pytest.mark.parametrize("epilogue", EPILOGUES[1:2], ids=str)
@pytest.mark.parametrize("blocks", [(8, 32), (32, 16)], ids=str)
def test_folds(epilogue, blocks):
    workload = replace(grouped(4, 23, 6, 9, padding=ONE, batch=2), epilogue=epilogue)
    layouts = tuple(map(DataLayout, blocks))
    scheme = template.fold(workload, GroupedScheme(8, 4, True), *layouts, HASWELL)
    assert (scheme.in_layout, scheme.out_layout) == layouts
    check_template(workload, scheme, threads=2, target=HASWELL)


def test_no_block_ends_within_a_group():
    """A vector reads all channels of its group: none may be beyond the last block."""
    workload = grouped(24, 5, 3, 3)
    assert {s.oc_bn for s in template.space(workload, HASWELL)} == {8}
    wide = DataLayout(16)
    assert template.fold(workload, GroupedScheme(8, 3, True), wide, wide, HASWELL) is None


def test_applies_to_groups_that_vectors_can_follow():
    assert not template.applies(conv_workload(1, 8, 4, 4, 16, (3, 3), groups=4), HASWELL)
    assert not template.applies(grouped(3, 8, 4, 4), HASWELL)
    assert not template.applies(grouped(1, 8, 4, 4), HASWELL)
    assert not template.applies(grouped(8, 1, 4, 4), HASWELL)


def test_a_vector_spans_groups_without_waste():
    """ResNeXt's first stage: groups of four channels, vectors of eight."""
    workload = grouped(4, 32, 56, 56, padding=ONE)
    best = registry.schemes(workload, HASWELL)[0]
    assert isinstance(best, GroupedScheme)
    assert "vpermilps" in compile_for(template.lower(workload, best, HASWELL), HASWELL)


def test_the_host_has_schemes_of_whole_vectors():
    workload = grouped(2 * HOST.lanes("float32"), 4, 14, 14, padding=ONE)
    assert all(s.oc_bn % HOST.lanes("float32") == 0 for s in template.space(workload, HOST))
