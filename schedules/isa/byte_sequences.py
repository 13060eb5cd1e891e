"""What x86 without VNNI has for bytes: VPMADDUBSW and VPMADDWD, or the latter twice.

The former adds two products up in 16 bits, which weights that are not known to be small enough
overflow; these are widened, into two vectors (`convolutions/dot_products/dot_instructions`).
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
