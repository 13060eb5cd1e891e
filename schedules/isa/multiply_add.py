"""Multiplication and addition of float32, which every CPU has."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import ARM, X86, Instruction
from neocpu.schedules.isa.semantics import multiply_adds, widened_pairs

FLOAT32 = Instruction(
    name="fma",
    isas=X86 | ARM | {"sse"},
    data="float32",
    weights="float32",
    sum="float32",
    group=1,
    semantics=multiply_adds,
)
WIDENED_BFLOAT16 = Instruction(
    name="fma of widened bfloat16",
    isas=X86 | ARM | {"sse"},
    data="bfloat16",
    weights="bfloat16",
    sum="float32",
    group=2,
    semantics=widened_pairs,
)
