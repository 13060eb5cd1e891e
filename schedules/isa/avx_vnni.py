"""Intel's AVX512-VNNI and AVX-VNNI: four products of bytes, or two of 16-bit integers.

LLVM uses the second encoding for 32-byte vectors of CPUs with AVX-VNNI alone.
"""

from __future__ import annotations

from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.isa.semantics import integers


def _of(isa: str, feature: str, bits: int, name: str, data: str, weights: str) -> Instruction:
    return Instruction(
        name=name,
        isas=frozenset({isa}),
        features=(feature,),
        data=data,
        weights=weights,
        sum="int32",
        group=4 if data == "uint8" else 2,
        semantics=integers,
        intrinsic=f"llvm.x86.avx512.{name}.{bits}",
    )


VPDPBUSD_512 = _of("avx512", "avx512vnni", 512, "vpdpbusd", "uint8", "int8")
VPDPBUSD_256 = _of("avx2", "avxvnni", 256, "vpdpbusd", "uint8", "int8")
VPDPWSSD_512 = _of("avx512", "avx512vnni", 512, "vpdpwssd", "int16", "int16")
VPDPWSSD_256 = _of("avx2", "avxvnni", 256, "vpdpwssd", "int16", "int16")
