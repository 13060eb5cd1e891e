"""Sequences that multiply bytes on x86 without VNNI: VPMADDUBSW and VPMADDWD, or VPMADDWD twice.

VPMADDUBSW adds two products in 16 bits. Weights that are not known to be small enough would
overflow there, so they are widened into two vectors (`convolutions/dot_products/dot_instructions`).
"""

from __future__ import annotations

from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.isa.semantics import saturating_pairs


def _of(isa: str, features: tuple[str, ...]) -> Instruction:
    return Instruction(
        name="vpmaddubsw, vpmaddwd",
        isas=frozenset({isa}),
        features=features,
        data="uint8",
        weights="int8",
        sum="int32",
        group=4,
        semantics=saturating_pairs,
    )


BYTES_512 = _of("avx512", ("avx512bw",))
BYTES_256 = _of("avx2", ())
