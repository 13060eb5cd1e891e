"""VPMADDWD on x86 without VNNI: two products of 16-bit integers, not added to sums."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.isa.semantics import integers


def _of(isa: str, features: tuple[str, ...], intrinsic: str) -> Instruction:
    return Instruction(
        name="vpmaddwd",
        isas=frozenset({isa}),
        features=features,
        data="int16",
        weights="int16",
        sum="int32",
        group=2,
        semantics=integers,
        intrinsic=intrinsic,
        adds=False,
    )


VPMADDWD_512 = _of("avx512", ("avx512bw",), "llvm.x86.avx512.pmaddw.d.512")
VPMADDWD_256 = _of("avx2", (), "llvm.x86.avx2.pmadd.wd")
