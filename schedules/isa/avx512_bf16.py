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
    # Measured on a Granite Rapids: half the multiply-adds of float32.
    rates=of_all(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), 0.5),
)
