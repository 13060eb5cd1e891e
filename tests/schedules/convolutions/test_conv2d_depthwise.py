"""Depthwise convolution against a naive reference, and grouped convolution of bfloat16."""

from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import EPILOGUES, check_rounded, check_template
from conv_workloads import PAD, conv_workload
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.in_groups import conv2d_depthwise as template
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import DepthwiseScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

HASWELL = FOREIGN[0]  # vectors of eight


def depthwise(channels, height, width, kernel, batch=1, **options):
    return conv_workload(
        batch, channels, height, width, channels, kernel, groups=channels, **options
    )


WORKLOADS = [
    depthwise(3, 5, 5, (3, 3), padding=PAD),
    depthwise(17, 9, 11, (3, 3), batch=2, stride=(2, 2), padding=(0, 1, 1, 0)),
    depthwise(33, 8, 13, (3, 2), dilation=(2, 3)),
    depthwise(16, 7, 7, (5, 5), batch=3, padding=(2, 2, 2, 2)),
    depthwise(31, 7, 7, (7, 7)),
    depthwise(7, 12, 10, (7, 7), padding=(3, 3, 3, 3), stride=(1, 2)),
    depthwise(5, 1, 1, (1, 1)),
    depthwise(16, 16, 16, (3, 3), batch=16, padding=PAD),
    depthwise(5, 5, 5, (5, 5), batch=5, padding=(2, 2, 2, 2)),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_every_scheme_matches_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert 0 < len(schemes) <= 12
    assert len(set(schemes)) == len(schemes)
    for scheme in schemes:
        check_template(workload, scheme)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
def test_epilogues_where_a_block_is_not_full(epilogue):
    workload = depthwise(19, 6, 9, (3, 3), padding=PAD, epilogue=epilogue)
    check_template(workload, DepthwiseScheme(16, 4, True))


@pytest.mark.parametrize(
    "scheme", [DepthwiseScheme(8, 3, True), DepthwiseScheme(4, 5, False)], ids=str
)
def test_blocks_narrower_than_a_vector(scheme):
    check_template(depthwise(17, 9, 11, (3, 3), padding=PAD), scheme, threads=4)


def test_does_not_apply_to_grouped_convolution():
    assert not template.applies(conv_workload(1, 8, 4, 4, 16, (3, 3), groups=8), HOST)


def test_padded_lanes_of_packed_weights_are_zero():
    workload = depthwise(5, 4, 4, (3, 3))
    packed = template.pack_weights(
        np.ones((5, 1, 3, 3), np.float32), workload, DepthwiseScheme(16, 1, True)
    )
    assert packed.shape == (1, 1, 3, 3, 16)
    assert packed[..., :5].all()
    assert not packed[..., 5:].any()


@pytest.mark.parametrize("blocks", [(8, 32), (32, 8), (16, 8), (24, 32)], ids=str)
def test_folds_read_and_store_other_blocks(blocks):
    epilogue = (EpilogueOp("bias_add"), EpilogueOp("add"))
    workload = depthwise(90, 6, 9, (3, 3), padding=PAD, epilogue=epilogue)
    plain = DepthwiseScheme(8, 4, True)
    layouts = tuple(map(DataLayout, blocks))
    scheme = template.fold(workload, plain, *layouts, HASWELL)
    assert (scheme.in_layout, scheme.out_layout) == layouts
    check_template(workload, scheme, threads=2, target=HASWELL)


def test_folds_of_vectors_only():
    workload = depthwise(90, 6, 9, (3, 3))
    scheme = DepthwiseScheme(8, 4, True)
    assert template.fold(workload, scheme, DataLayout(8), DataLayout(1), HASWELL) is None
    assert template.fold(workload, scheme, DataLayout(4), DataLayout(8), HASWELL) is None
    # 90 channels are 96 in blocks of 8, 112 in blocks of 56.
    assert template.fold(workload, scheme, DataLayout(8), DataLayout(56), HASWELL) is None
    back = template.fold(workload, scheme, DataLayout(16), DataLayout(16), HASWELL)
    assert back == DepthwiseScheme(16, 4, True)


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize(
    "workload",
    [
        depthwise(16, 112, 5, (3, 3), padding=PAD),
        depthwise(9, 13, 40, (5, 5), padding=(2, 2, 2, 2), stride=(2, 2)),
        depthwise(24, 4, 4, (3, 3), padding=(9, 9, 9, 9), batch=2),
        depthwise(8, 9, 40, (1, 31), padding=(0, 15, 0, 15)),
    ],
    ids=str,
)
@needs.one_in(3)
def test_rows_are_shared_out_without_rest(workload, threads):
    """A row that no task computes would stay NaN."""
    check_template(workload, template.space(workload, HOST)[0], threads=threads)


HALVES = Numerics(data="bfloat16", weights="float32", sum="float32", output="bfloat16")
TO_FLOAT = replace(HALVES, output="float32")
STEPS = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))

OF_HALVES = [
    conv_workload(1, 32, 9, 11, 32, (3, 3), stride=(1, 1), padding=PAD, groups=32, epilogue=STEPS),
    conv_workload(
        2, 37, 8, 7, 37, (5, 3), stride=(2, 1), padding=(2, 0, 1, 3), dilation=(1, 2), groups=37
    ),
    conv_workload(1, 16, 5, 6, 16, (1, 1), groups=16, epilogue=STEPS[:1]),
    conv_workload(1, 32, 7, 9, 32, (3, 3), stride=(2, 2), padding=PAD, groups=8, epilogue=STEPS),
]


@pytest.mark.parametrize("numerics", [HALVES, TO_FLOAT], ids=str)
@pytest.mark.parametrize("plain", OF_HALVES, ids=str)
def test_bfloat16_errs_only_by_rounding_stored_values(plain, numerics):
    workload = replace(plain, numerics=numerics)
    schemes = registry.schemes(workload, HOST)
    for scheme in (schemes[0], schemes[-1]):
        check_rounded(workload, scheme, 2)


@pytest.mark.parametrize("target", ["haswell", "znver4"])
def test_widening_is_a_shift(target):
    cpu = parse_target(f"llvm -mcpu={target}")
    workload = replace(OF_HALVES[0], numerics=HALVES)
    text = compile_for(registry.lower(workload, registry.schemes(workload, cpu)[0], cpu, 1), cpu)
    assert "vpslld\t$16" in text
    assert "vfmadd" in text


def test_templates_of_float32_leave_it_alone():
    """Templates of float32 do not round to bfloat16."""
    for numerics in (
        TO_FLOAT,
        Numerics(data="float32", weights="float32", sum="float32", output="bfloat16"),
    ):
        workload = conv_workload(
            1, 32, 9, 9, 32, (3, 3), stride=(1, 1), padding=PAD, numerics=numerics
        )
        assert not registry.is_computed(workload, HOST)
