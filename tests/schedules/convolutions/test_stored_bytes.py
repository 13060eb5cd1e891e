"""Convolutions that compute in float32 and read or store bytes, against the numpy reference."""

from __future__ import annotations

from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import check_exact, written
from conv_workloads import PAD, conv_workload
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands, wrong_answer
from neocpu.schedules.convolutions.in_groups import conv2d_depthwise, conv2d_grouped
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics, Quantisation
from neocpu.schedules.vocabulary.scheme import DepthwiseScheme, GroupedScheme
from neocpu.schedules.vocabulary.workload import EpilogueOp

BYTES = Numerics(data="uint8", weights="float32", sum="float32", output="uint8")
TO_FLOAT = replace(BYTES, output="float32")
FROM_FLOAT = Numerics(data="float32", weights="float32", sum="float32", output="uint8")
ASYMMETRIC = replace(BYTES, quantised=(("data", Quantisation("tensor", symmetric=False)),))
SUMS = (EpilogueOp("bias_add"), EpilogueOp("rescale"))
PLAIN = (*SUMS, EpilogueOp("quantise", (0.0,)))
ZERO_POINT = (*SUMS, EpilogueOp("quantise", (97.0,)))
RESIDUAL = (*SUMS, EpilogueOp("add"), EpilogueOp("relu"), EpilogueOp("quantise", (3.0,)))


def in_groups(channels, height, width, kernel, groups=None, batch=1, **options):
    return conv_workload(
        batch, channels, height, width, channels, kernel, groups=groups or channels, **options
    )


DEPTHWISE = [
    in_groups(35, 9, 11, (3, 3), padding=PAD, numerics=BYTES, epilogue=PLAIN),
    in_groups(17, 9, 12, (3, 3), batch=2, stride=(2, 2), padding=(0, 1, 1, 0), numerics=ASYMMETRIC,
              epilogue=ZERO_POINT),
    in_groups(33, 8, 13, (3, 2), dilation=(2, 3), numerics=TO_FLOAT, epilogue=SUMS),
    in_groups(16, 7, 7, (5, 5), batch=3, padding=(2, 2, 2, 2), numerics=BYTES, epilogue=RESIDUAL),
    in_groups(9, 12, 10, (7, 7), padding=(3, 3, 3, 3), stride=(1, 2), numerics=ASYMMETRIC,
              epilogue=ZERO_POINT),
    in_groups(5, 1, 1, (1, 1), numerics=BYTES, epilogue=PLAIN),
    in_groups(6, 3, 3, (3, 3), padding=(2, 2, 2, 2), stride=(3, 1), numerics=ASYMMETRIC,
              epilogue=PLAIN),
]  # fmt: skip
GROUPED = [
    in_groups(40, 9, 7, (3, 3), 20, padding=PAD, numerics=BYTES, epilogue=PLAIN),
    in_groups(32, 5, 6, (1, 1), 8, batch=2, numerics=TO_FLOAT, epilogue=SUMS),
    in_groups(48, 8, 6, (3, 2), 12, stride=(2, 1), padding=PAD, numerics=ASYMMETRIC,
              epilogue=ZERO_POINT),
]  # fmt: skip
ROUNDING = [
    conv_workload(1, 67, 7, 7, 59, (1, 1), numerics=FROM_FLOAT, epilogue=PLAIN),
    conv_workload(2, 33, 9, 10, 40, (3, 3), padding=PAD, numerics=FROM_FLOAT, epilogue=ZERO_POINT),
    conv_workload(
        1, 3, 17, 13, 20, (5, 3), stride=(2, 1), padding=PAD, numerics=FROM_FLOAT, epilogue=RESIDUAL
    ),
    in_groups(35, 9, 11, (3, 3), padding=PAD, numerics=FROM_FLOAT, epilogue=PLAIN),
]


def check(workload, scheme, threads=1, target=HOST):
    operands = random_operands(workload, 1)
    if workload.numerics.reads_float32:
        # Sums are normal: they are to fill the bytes.
        spread = (60 * np.abs(o) + 20 if op.kind == "rescale" else o for op, o in zip(
            (op for op in workload.epilogue if op.operand != "none"), operands.epilogue, strict=True
        ))  # fmt: skip
        operands = replace(operands, epilogue=tuple(spread))
    check_exact(
        workload, scheme, threads, target, operands, may_round=workload.numerics.reads_float32
    )


@pytest.mark.parametrize("workload", DEPTHWISE, ids=str)
@needs.one_in(2)
def test_depthwise(workload):
    for scheme in conv2d_depthwise.space(workload, HOST):
        check(workload, scheme, threads=2)


@pytest.mark.parametrize("workload", GROUPED, ids=str)
def test_grouped(workload):
    for scheme in conv2d_grouped.TEMPLATE.space(workload, HOST)[:3]:
        check(workload, scheme, threads=3)


@pytest.mark.parametrize("workload", ROUNDING, ids=str)
def test_every_template_stores_bytes(workload):
    schemes = registry.schemes(workload, HOST)
    names = {scheme.template for scheme in schemes}
    assert names >= {"conv2d_direct" if workload.groups == 1 else "conv2d_depthwise"}
    for name in sorted(names):
        check(workload, next(s for s in schemes if s.template == name), threads=2)


def test_folds_read_and_store_other_blocks():
    workload = in_groups(90, 6, 9, (3, 3), padding=PAD, numerics=ASYMMETRIC, epilogue=ZERO_POINT)
    scheme = conv2d_depthwise.fold(
        workload, DepthwiseScheme(8, 4, True), DataLayout(16), DataLayout(32), HOST
    )
    check(workload, scheme, threads=2)


def test_wide_groups_of_bytes_are_not_for_this_template():
    wide = in_groups(64, 6, 9, (3, 3), 2, numerics=BYTES, epilogue=PLAIN)
    assert not conv2d_grouped.applies(wide, HOST)
    assert conv2d_grouped.applies(replace(wide, numerics=FROM_FLOAT), HOST)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("workload", [DEPTHWISE[0], DEPTHWISE[1], GROUPED[0]], ids=str)
@needs.one_in(2)
def test_compiles_for_other_cpus(workload, target):
    scheme = registry.schemes(workload, target)[0]
    assert isinstance(scheme, DepthwiseScheme | GroupedScheme)
    assembly = compile_for(registry.lower(workload, scheme, target, threads=2), target)
    assert ("fcvtzs" if target.machine == "aarch64" else "cvtps2dq") in assembly, "rounds vectors"


def test_numbers_beyond_32_bits_saturate():
    workload = replace(ROUNDING[0], epilogue=PLAIN[1:])
    operands = random_operands(workload, 1)
    huge = np.where(np.arange(59) % 2, np.float32(1e30), np.float32(-1e30))
    scheme = registry.schemes(workload, HOST)[0]
    operands = replace(operands, epilogue=(huge,))
    (got,) = written(workload, scheme, operands, over=(7,))
    assert wrong_answer(scheme, got, conv2d(workload, operands)) is None
    assert set(np.unique(scheme.out_layout.unpack(got, 59))) == {0, 255}
