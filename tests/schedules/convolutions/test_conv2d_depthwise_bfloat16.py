"""Depthwise and grouped convolutions that read bfloat16, and write it or float32."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, build, call, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

HALVES = Numerics(data="bfloat16", weights="float32", sum="float32", output="bfloat16")
TO_FLOAT = replace(HALVES, output="float32")
STEPS = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))
PAD = (1, 1, 1, 1)

WORKLOADS = [
    conv_workload(1, 32, 9, 11, 32, (3, 3), stride=(1, 1), padding=PAD, groups=32, epilogue=STEPS),
    conv_workload(
        2, 37, 8, 7, 37, (5, 3), stride=(2, 1), padding=(2, 0, 1, 3), dilation=(1, 2), groups=37
    ),
    conv_workload(1, 16, 5, 6, 16, (1, 1), groups=16, epilogue=STEPS[:1]),
    conv_workload(1, 32, 7, 9, 32, (3, 3), stride=(2, 2), padding=PAD, groups=8, epilogue=STEPS),
]


@pytest.mark.parametrize("numerics", [HALVES, TO_FLOAT], ids=str)
@pytest.mark.parametrize("plain", WORKLOADS, ids=str)
def test_errors_come_only_from_rounding_stored_values(plain, numerics):
    workload = replace(plain, numerics=numerics)
    operands = random_operands(workload, 1)
    expected = conv2d(workload, operands)
    schemes = registry.schemes(workload, HOST)
    for scheme in (schemes[0], schemes[-1]):
        arguments = kernel_arguments(
            workload, scheme, operands, registry.pack_weights(operands.weights, workload, scheme)
        )
        shape, dtype = registry.argument_shapes(workload, scheme)[-1]
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        func = registry.lower(workload, scheme, HOST, 2)
        (got,) = call(build(func), arguments, [np.zeros(shape, kind)])
        assert wrong_answer(scheme, got, expected) is None, str(scheme)
        wide = scheme.out_layout.unpack(got, workload.out_channels).astype(np.float32)
        norm = np.linalg.norm(wide - expected) / np.linalg.norm(expected)
        assert norm <= (2.0**-8 if dtype == "bfloat16" else 1e-6)


@pytest.mark.parametrize("target", ["haswell", "znver4"])
def test_widening_is_a_shift(target):
    cpu = parse_target(f"llvm -mcpu={target}")
    workload = replace(WORKLOADS[0], numerics=HALVES)
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
