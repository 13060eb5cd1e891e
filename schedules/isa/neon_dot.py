"""AArch64's FEAT_DotProd: SDOT and UDOT, four products of bytes, both signed or both unsigned."""

from __future__ import annotations

from neocpu.schedules.isa.instruction import ARM, Instruction
from neocpu.schedules.isa.semantics import integers

SIGN_BIT = 128
"""The difference of unsigned and signed bytes; subtracting it flips the highest bit."""


def _of(name: str, data: str, weights: str, offset: int = 0) -> Instruction:
    return Instruction(
        name=name,
        isas=ARM,
        features=("dotprod",),
        data=data,
        weights=weights,
        sum="int32",
        group=4,
        semantics=integers,
        intrinsic=f"llvm.aarch64.neon.{name}",
        offset=offset,
    )


SDOT = _of("sdot", "int8", "int8")
UDOT = _of("udot", "uint8", "uint8")
SDOT_OF_UNSIGNED = _of("sdot", "uint8", "int8", SIGN_BIT)
