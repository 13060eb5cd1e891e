"""AArch64's FEAT_I8MM: USDOT, and products of 2x8 by 8x2 bytes at twice the rate."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import ARM, Instruction
from neocpu.schedules.isa.semantics import integers

USDOT = Instruction(
    name="usdot",
    isas=ARM,
    features=("i8mm",),
    data="uint8",
    weights="int8",
    sum="int32",
    group=4,
    semantics=integers,
    intrinsic="llvm.aarch64.neon.usdot",
)


def _matrix(name: str, data: str, weights: str) -> Instruction:
    return Instruction(
        name=name,
        isas=ARM,
        features=("i8mm",),
        data=data,
        weights=weights,
        sum="int32",
        group=8,
        rows=2,
        columns=2,
        semantics=integers,
        intrinsic=f"llvm.aarch64.neon.{name}.v4i32.v16i8",
    )


SMMLA = _matrix("smmla", "int8", "int8")
UMMLA = _matrix("ummla", "uint8", "uint8")
USMMLA = _matrix("usmmla", "uint8", "int8")
