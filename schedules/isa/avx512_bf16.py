"""Intel's AVX512-BF16: two products of bfloat16."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import Instruction, of_all
from neocpu.schedules.isa.semantics import vdpbf16ps

VDPBF16PS = Instruction(
    name="vdpbf16ps",
    isas=frozenset({"avx512"}),
    features=("avx512bf16",),
    data="bfloat16",
    weights="bfloat16",
    sum="float32",
    group=2,
    semantics=vdpbf16ps,
    intrinsic="llvm.x86.avx512bf16.dpbf16ps.512",
    # On a Granite Rapids (measured), it is half the rate of float32 multiply-adds.
    rates=of_all(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), 0.5),
)
