"""AArch64's FEAT_BF16: BFDOT, and BFMMLA, which multiplies 2x4 by 4x2."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import ARM, Instruction
from neocpu.schedules.isa.semantics import rounded_to_odd


def _of(name: str, intrinsic: str, group: int, rows: int, columns: int) -> Instruction:
    return Instruction(
        name=name,
        isas=ARM,
        features=("bf16",),
        data="bfloat16",
        weights="bfloat16",
        sum="float32",
        group=group,
        rows=rows,
        columns=columns,
        semantics=rounded_to_odd,
        intrinsic=intrinsic,
    )


BFDOT = _of("bfdot", "llvm.aarch64.neon.bfdot.v4f32.v8bf16", 2, 1, 0)
BFMMLA = _of("bfmmla", "llvm.aarch64.neon.bfmmla", 4, 2, 2)
