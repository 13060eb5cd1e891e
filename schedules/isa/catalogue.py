"""All multiply-add instructions, family by family, and those that a CPU has."""

from __future__ import annotations

from typing import Any, Final

from neocpu.schedules.isa.instruction import Instruction, Semantics
from neocpu.schedules.isa.semantics import (
    integers,
    multiply_adds,
    rounded_to_odd,
    saturating_pairs,
    tdpbf16ps,
    vdpbf16ps,
    widened_pairs,
)

SIGN_BIT: Final = 128  # from signed to unsigned bytes; subtracting it flips the highest bit
TILE_ROWS: Final = 16
TILE_COLUMNS: Final = 16
ROW_BYTES: Final = 64  # of an AMX tile: one cache line

_ALL: Final = "avx512 avx2 neon sse"
_FLOAT32: Final = "float32 float32 float32"
_BFLOAT16: Final = "bfloat16 bfloat16 float32"
_MIXED: Final = "uint8 int8 int32"
_SIGNED: Final = "int8 int8 int32"
_UNSIGNED: Final = "uint8 uint8 int32"
_WORDS: Final = "int16 int16 int32"


def _of(
    name: str,
    isas: str,
    features: str,
    types: str,
    group: int,
    semantics: Semantics,
    intrinsic: str = "",
    **more: Any,
) -> Instruction:
    """Return an instruction; ``types`` are those of data, weights and sums."""
    data, weights, total = types.split()
    return Instruction(
        name=name,
        isas=frozenset(isas.split()),
        features=tuple(features.split()),
        data=data,
        weights=weights,
        sum=total,
        group=group,
        semantics=semantics,
        intrinsic=intrinsic,
        **more,
    )


def _tiles(name: str, types: str, group: int, semantics: Semantics) -> Instruction:
    """Return one of AMX: a product of tiles of 16 pixels by 16 channels.

    On a Granite Rapids one product takes 16 cycles for any number of rows, and its sums can be
    added to again as soon. The system has to permit tiles. The feature ``amx-tile`` also stands for
    ``amx-int8`` and ``amx-bf16``: targets that lack one of them have none.
    """
    return _of(
        name,
        "avx512",
        "amx-tile",
        types,
        group,
        semantics,
        f"llvm.x86.{name}",
        rows=TILE_ROWS,
        columns=TILE_COLUMNS,
        depth=TILE_ROWS * group,
        latency=16.0,
        rate=1 / 16,
        in_tiles=True,
    )


def _squares(name: str, feature: str, types: str, group: int, ending: str) -> Instruction:
    """Return a product of two pixels by two channels, at twice the rate of dot products on ARM."""
    how = rounded_to_odd if types == _BFLOAT16 else integers
    intrinsic = f"llvm.aarch64.neon.{name}{ending}"
    return _of(name, "neon", feature, types, group, how, intrinsic, rows=2, columns=2)


TDPBUSD: Final = _tiles("tdpbusd", _MIXED, 4, integers)
TDPBSSD: Final = _tiles("tdpbssd", _SIGNED, 4, integers)
TDPBF16PS: Final = _tiles("tdpbf16ps", _BFLOAT16, 2, tdpbf16ps)

_PAIRS: Final = "vpmaddubsw, vpmaddwd"
# On a Granite Rapids (measured), VDPBF16PS has half the rate of float32 multiply-adds.
_HALF_RATE: Final = dict.fromkeys(
    ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), 0.5
)
_X86: Final = "llvm.x86"
_NEON: Final = "llvm.aarch64.neon"

INSTRUCTIONS: Final[tuple[Instruction, ...]] = (
    _of("fma", _ALL, "", _FLOAT32, 1, multiply_adds),
    # AVX512-VNNI, and AVX-VNNI, whose encoding LLVM uses for 32 bytes of CPUs with that alone.
    _of("vpdpbusd", "avx512", "avx512vnni", _MIXED, 4, integers, f"{_X86}.avx512.vpdpbusd.512"),
    _of("vpdpbusd", "avx2", "avxvnni", _MIXED, 4, integers, f"{_X86}.avx512.vpdpbusd.256"),
    # AVX-VNNI-INT8, and AVX10.2's of 64 bytes.
    _of("vpdpbssd", "avx512", "avx10.2", _SIGNED, 4, integers, f"{_X86}.avx10.vpdpbssd.512"),
    _of("vpdpbssd", "avx2", "avxvnniint8", _SIGNED, 4, integers, f"{_X86}.avx2.vpdpbssd.256"),
    # Sequences without VNNI. VPMADDUBSW adds two products in 16 bits; weights that may be too large
    # are widened for two VPMADDWD instead (`convolutions/dot_products/dot_instructions`).
    _of(_PAIRS, "avx512", "avx512bw", _MIXED, 4, saturating_pairs),
    _of(_PAIRS, "avx2", "", _MIXED, 4, saturating_pairs),
    _of(
        "vdpbf16ps",
        "avx512",
        "avx512bf16",
        _BFLOAT16,
        2,
        vdpbf16ps,
        f"{_X86}.avx512bf16.dpbf16ps.512",
        rates=_HALF_RATE,
    ),
    _of("bfdot", "neon", "bf16", _BFLOAT16, 2, rounded_to_odd, f"{_NEON}.bfdot.v4f32.v8bf16"),
    _of("fma of widened bfloat16", _ALL, "", _BFLOAT16, 2, widened_pairs),
    # FEAT_DotProd, and FEAT_I8MM's USDOT.
    _of("sdot", "neon", "dotprod", _SIGNED, 4, integers, f"{_NEON}.sdot"),
    _of("udot", "neon", "dotprod", _UNSIGNED, 4, integers, f"{_NEON}.udot"),
    _of("usdot", "neon", "i8mm", _MIXED, 4, integers, f"{_NEON}.usdot"),
    _of("sdot", "neon", "dotprod", _MIXED, 4, integers, f"{_NEON}.sdot", offset=SIGN_BIT),
    _of("vpdpwssd", "avx512", "avx512vnni", _WORDS, 2, integers, f"{_X86}.avx512.vpdpwssd.512"),
    _of("vpdpwssd", "avx2", "avxvnni", _WORDS, 2, integers, f"{_X86}.avx512.vpdpwssd.256"),
    # These products are not added to sums.
    _of(
        "vpmaddwd",
        "avx512",
        "avx512bw",
        _WORDS,
        2,
        integers,
        f"{_X86}.avx512.pmaddw.d.512",
        adds=False,
    ),
    _of("vpmaddwd", "avx2", "", _WORDS, 2, integers, f"{_X86}.avx2.pmadd.wd", adds=False),
    _squares("smmla", "i8mm", _SIGNED, 8, ".v4i32.v16i8"),
    _squares("ummla", "i8mm", _UNSIGNED, 8, ".v4i32.v16i8"),
    _squares("usmmla", "i8mm", _MIXED, 8, ".v4i32.v16i8"),
    _squares("bfmmla", "bf16", _BFLOAT16, 4, ""),
    TDPBUSD,
    TDPBSSD,
    TDPBF16PS,
)
"""All instructions, the preferred ones first."""


def instructions(
    types: tuple[str, str, str], isa: str, features: frozenset[str]
) -> tuple[Instruction, ...]:
    """Return a CPU's instructions for these types of data, weights and sums, preferred first."""
    return tuple(each for each in INSTRUCTIONS if each.fits(types, isa, features))
