"""All multiply-add instructions, the preferred ones first."""

from __future__ import annotations

from typing import Final

from neocpu.schedules.isa import (
    amx,
    avx512_bf16,
    avx_vnni,
    avx_vnni_int8,
    byte_sequences,
    multiply_add,
    neon_bf16,
    neon_dot,
    neon_i8mm,
    word_products,
)
from neocpu.schedules.isa.instruction import Instruction

INSTRUCTIONS: Final[tuple[Instruction, ...]] = (
    multiply_add.FLOAT32,
    avx_vnni.VPDPBUSD_512,
    avx_vnni.VPDPBUSD_256,
    avx_vnni_int8.VPDPBSSD_512,
    avx_vnni_int8.VPDPBSSD_256,
    byte_sequences.BYTES_512,
    byte_sequences.BYTES_256,
    avx512_bf16.VDPBF16PS,
    neon_bf16.BFDOT,
    multiply_add.WIDENED_BFLOAT16,
    neon_dot.SDOT,
    neon_dot.UDOT,
    neon_i8mm.USDOT,
    neon_dot.SDOT_OF_UNSIGNED,
    avx_vnni.VPDPWSSD_512,
    avx_vnni.VPDPWSSD_256,
    word_products.VPMADDWD_512,
    word_products.VPMADDWD_256,
    neon_i8mm.SMMLA,
    neon_i8mm.UMMLA,
    neon_i8mm.USMMLA,
    neon_bf16.BFMMLA,
    amx.TDPBUSD,
    amx.TDPBSSD,
    amx.TDPBF16PS,
)


def instructions(
    types: tuple[str, str, str], isa: str, features: frozenset[str]
) -> tuple[Instruction, ...]:
    """Return a CPU's instructions for these types of data, weights and sums, preferred first."""
    return tuple(each for each in INSTRUCTIONS if each.fits(types, isa, features))
