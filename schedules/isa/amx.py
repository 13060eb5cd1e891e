"""Intel's AMX: products of tiles of 16 pixels by 16 channels, 32 bfloat16 or 64 bytes deep.

A row of a tile has 64 bytes. On a Granite Rapids one product takes 16 cycles for any number of
rows, and its sums can be added to again as soon. A process needs the system's permission before it
may use tiles. The feature ``amx-tile`` also stands for ``amx-int8`` and ``amx-bf16``: targets that
lack one of them have none.
"""

from __future__ import annotations

from typing import Final

from neocpu.schedules.isa.instruction import Instruction, Semantics
from neocpu.schedules.isa.semantics import integers, tdpbf16ps

TILE_ROWS: Final = 16
ROW_BYTES: Final = 64
"""The bytes of a row of a tile: one cache line."""


def _of(name: str, types: tuple[str, str, str], group: int, semantics: Semantics) -> Instruction:
    data, weights, total = types
    return Instruction(
        name=name,
        isas=frozenset({"avx512"}),
        features=("amx-tile",),
        data=data,
        weights=weights,
        sum=total,
        group=group,
        rows=TILE_ROWS,
        columns=TILE_ROWS,
        depth=TILE_ROWS * group,
        semantics=semantics,
        intrinsic=f"llvm.x86.{name}",
        latency=16.0,
        rate=1 / 16,
        in_tiles=True,
    )


TDPBUSD = _of("tdpbusd", ("uint8", "int8", "int32"), 4, integers)
TDPBSSD = _of("tdpbssd", ("int8", "int8", "int32"), 4, integers)
TDPBF16PS = _of("tdpbf16ps", ("bfloat16", "bfloat16", "float32"), 2, tdpbf16ps)
