"""Chains of elementwise operators, of any element types, become one loop over vectors."""

from __future__ import annotations

import math
import re
from typing import Any

import needs
import pytest
from kernel_harness import compile_for
from tvm import te, tirx
from tvm.error import InternalError

from neocpu.schedules.estimates.kernel_work import GATHER, LIBRARY, SCALAR
from neocpu.schedules.estimates.shortcomings import shortcomings
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.operators.quantised.quantise import dequantise, quantise
from neocpu.schedules.vocabulary.steps import NO_OPERAND, STEP_KINDS
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target

#: Rows are so long that work done once per row is negligible.
SHAPE = (1, 8, 28, 36, 16)
TARGETS = {
    "znver4": "llvm -mcpu=znver4",
    "haswell": "llvm -mcpu=haswell",
    "cortex-a72": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
}
DTYPES = ("float32", "bfloat16", "uint8", "int8", "int32")
PARAMETERS = {"clip": (0.0, 6.0), "quantise": (3.0,), "leaky_relu": (0.1,)}
#: The share of a kernel's cycles that may be spent on single elements.
LEFT_OVER = 0.02


def grid(dtype: str, others: list[te.Tensor]) -> list[te.Tensor]:
    """Return the scale and the zero point of each block of channels."""
    made = [te.placeholder((8,), kind, name="grid") for kind in ("float32", dtype)]
    others += made
    return made


def widened(x: te.Tensor, others: list[te.Tensor]) -> te.Tensor:
    """Return the numbers in float32, dequantised if they are quantised."""
    if x.dtype == "float32":
        return x
    if x.dtype in ("uint8", "int8"):
        return dequantise(x, *grid(x.dtype, others), 1)
    return te.compute(x.shape, lambda *i: x(*i).astype("float32"), name="widen")


def narrowed(x: te.Tensor, dtype: str, others: list[te.Tensor]) -> te.Tensor:
    """Return the numbers in a type, quantised where it has 8 bits."""
    if dtype in ("uint8", "int8"):
        return quantise(x, *grid(dtype, others), 1, dtype)
    return te.compute(x.shape, lambda *i: x(*i).astype(dtype), name="narrow")


def stepped(x: te.Tensor, kind: str, others: list[te.Tensor]) -> te.Tensor:
    step = STEP_KINDS[kind]
    operand = None
    if step.operand != NO_OPERAND:
        operand = te.placeholder((1, 8, 1, 1, 16), name="operand")
        others.append(operand)

    def element(*place: Any) -> Any:
        number, channel, _, _, lane = place
        with_it = None if operand is None else operand(number, channel, 0, 0, lane)
        return step.emit(x(*place), with_it, *PARAMETERS.get(kind, ()))

    return te.compute(x.shape, element, name=kind)


def assert_vectors(function: tirx.PrimFunc, target: CpuTarget) -> None:
    nests = count_work(function, target)
    assert not shortcomings(function, nests)
    spent = math.fsum(math.fsum(nest.cycles) for nest in nests)
    alone = math.fsum(nest.cycles[kind] for nest in nests for kind in (SCALAR, GATHER, LIBRARY))
    assert alone <= LEFT_OVER * spent, f"{alone / spent:.0%} of the cycles are no vectors'"
    assert all(nest.forks for nest in nests)


def scheduled_chain(given: str, kind: str, made: str, target: CpuTarget) -> tirx.PrimFunc:
    """Return a step between two types, scheduled."""
    x = te.placeholder(SHAPE, given, name="x")
    others: list[te.Tensor] = []
    y = narrowed(stepped(widened(x, others), kind, others), made, others)
    return schedule_function(te.create_prim_func([x, *others, y]), target)


@pytest.mark.parametrize("made", DTYPES)
@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("cpu", TARGETS)
def test_every_step_between_any_types_is_a_loop_over_vectors(cpu, given, made):
    target = parse_target(TARGETS[cpu])
    for kind in STEP_KINDS:
        try:
            assert_vectors(scheduled_chain(given, kind, made, target), target)
        except AssertionError as error:
            raise AssertionError(f"{given} -> {kind} -> {made}: {error}") from None


def library_calls(assembly: str) -> set[str]:
    """Return the external functions that code calls by name."""
    called = set(re.findall(r"^\s(?:callq|bl)\s+([a-zA-Z_]\S*)", assembly, re.MULTILINE))
    own = set(re.findall(r"^([a-zA-Z_]\w*):", assembly, re.MULTILINE))
    return called - own


@pytest.mark.slow
@pytest.mark.parametrize("made", DTYPES)
@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("cpu", TARGETS)
@needs.one_in(7)
def test_every_step_between_any_types_becomes_code_without_library_calls(cpu, given, made):
    """A kernel is compiled without its schedule if TVM cannot generate code from it."""
    target = parse_target(TARGETS[cpu])
    for kind in STEP_KINDS:
        try:
            code = compile_for(scheduled_chain(given, kind, made, target), target)
        except InternalError as error:
            raise AssertionError(f"{given} -> {kind} -> {made}: {error}") from None
        assert not library_calls(code), f"{given} -> {kind} -> {made}"
