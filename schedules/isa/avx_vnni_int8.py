"""Intel's AVX-VNNI-INT8, and AVX10.2's of 64 bytes: four products of signed bytes."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.isa.semantics import integers


def _of(isa: str, feature: str, intrinsic: str) -> Instruction:
    return Instruction(
        name="vpdpbssd",
        isas=frozenset({isa}),
        features=(feature,),
        data="int8",
        weights="int8",
        sum="int32",
        group=4,
        semantics=integers,
        intrinsic=intrinsic,
    )


VPDPBSSD_512 = _of("avx512", "avx10.2", "llvm.x86.avx10.vpdpbssd.512")
VPDPBSSD_256 = _of("avx2", "avxvnniint8", "llvm.x86.avx2.vpdpbssd.256")
