"""Dot units: the instructions that multiply and add, by the numerics they are for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.numerics import Numerics

# Cycles before a sum can be added to again: of float32 on all CPUs that were looked at, and of
# VPDPBUSD and SDOT as their vendors' guides and InstLatx64 have it.
LATENCY = 4.0
# What unsigned bytes are more than signed ones are: to take it from them flips their highest bit.
SIGN_BIT: Final = 128


@dataclass(frozen=True, slots=True)
class DotUnit:
    """An instruction, or a sequence, that adds products to every lane of a vector of sums.

    Attributes
    ----------
    group : int
        Products it adds to each sum: of so many neighbouring input channels.
    lanes : int
        Sums in its vector.
    per_cycle : float
        How many a core starts per cycle.
    latency : float
        Cycles before a sum can be added to again.
    vector_bytes : int
        Of a vector of sums, or of weights.
    registers : int
        Vector registers that the CPU has, less those that a sequence needs for itself.
    broadcasts : bool
        Whether it broadcasts one operand itself: from memory, or from a lane.
    by_lane : bool
        Whether it takes one lane of a vector (one group of it) as a factor of all.
    intrinsic : str
        LLVM's name of it: ``(sums, data, weights)`` to sums, or, of what is symmetric, the last
        two in either order. Empty where a multiplication and an
        addition say it, or a sequence does.
    int16_sums : int
        Of a sequence: how many products it may add up in 16 bits, see `Numerics.int16_sums`.
    operand_vectors : int
        Registers that a vector of weights of a step takes.
    offset : int
        What data are less, to the instruction, than they are: unsigned ones where it has none.
    adds : bool
        Whether the instruction adds its products to the sums; if not, an addition follows.
    is_symmetric : bool
        Whether data and weights are of one type to the instruction.
    """

    group: int
    lanes: int
    per_cycle: float
    latency: float
    vector_bytes: int
    registers: int
    broadcasts: bool
    by_lane: bool
    intrinsic: str = ""
    int16_sums: int = 0
    operand_vectors: int = 1
    offset: int = 0
    adds: bool = True
    is_symmetric: bool = False

    @property
    def broadcasts_from_memory(self) -> bool:
        """Whether a factor may be one element of memory, in all lanes."""
        return self.broadcasts and not self.by_lane

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one instruction."""
        return self.group * self.lanes

    @property
    def is_sequence(self) -> bool:
        """Whether products and sums are instructions of their own, of 16-bit integers."""
        return self.group == _BYTES_OF_A_SUM and not self.intrinsic

    @property
    def widens_floats(self) -> bool:
        """Whether pairs of 16-bit floats are made float32 before they are multiplied."""
        return self.group == _HALVES_OF_A_SUM and not self.intrinsic

    def adding(self, groups: int) -> DotUnit:
        """Return a sequence that adds the products of ``groups`` groups in 16 bits first.

        It starts as many as it starts multiplications: two for each group by itself, one for each
        and one for all otherwise.
        """
        if groups == 1:
            return self
        assert self.is_sequence, self
        assert 2 * groups <= self.int16_sums, self
        faster = self.per_cycle * 2 * groups / (groups + 1)
        return replace(self, per_cycle=faster, operand_vectors=groups)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Numerics of an instruction: element types of data, weights and sums; its feature, and group.

    A feature of "" is in every CPU of the instruction set. Then comes LLVM's name of it, what is to
    be taken from the data first, and whether it adds its products to the sums.
    """

    isas: frozenset[str]
    data: str
    weights: str
    sum: str
    feature: str
    group: int
    intrinsic: str = ""
    offset: int = 0
    adds: bool = True


_X86 = frozenset({"avx512", "avx2"})
_ARM = frozenset({"neon"})
# On 32-byte vectors of a CPU with AVX-VNNI alone LLVM gives it its other encoding.
_VPDPBUSD = "llvm.x86.avx512.vpdpbusd"
_VPDPWSSD = "llvm.x86.avx512.vpdpwssd"
_VPMADDWD = ("llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512")
_SDOT, _UDOT = "llvm.aarch64.neon.sdot", "llvm.aarch64.neon.udot"
_BYTES_OF_A_SUM: Final = 4
_HALVES_OF_A_SUM: Final = 2
_BF16: Final = ("bfloat16", "bfloat16", "float32")
_INT16: Final = ("int16", "int16", "int32")
# In the order of preference.
_KINDS = (
    _Kind(_X86 | _ARM | {"sse"}, "float32", "float32", "float32", "", 1),
    _Kind(frozenset({"avx512"}), "uint8", "int8", "int32", "avx512vnni", 4, f"{_VPDPBUSD}.512"),
    _Kind(frozenset({"avx2"}), "uint8", "int8", "int32", "avxvnni", 4, f"{_VPDPBUSD}.256"),
    _Kind(frozenset({"avx512"}), "uint8", "int8", "int32", "avx512bw", 4),
    _Kind(frozenset({"avx2"}), "uint8", "int8", "int32", "", 4),
    _Kind(frozenset({"avx512"}), *_BF16, "avx512bf16", 2, "llvm.x86.avx512bf16.dpbf16ps.512"),
    _Kind(_ARM, *_BF16, "bf16", 2, "llvm.aarch64.neon.bfdot.v4f32.v8bf16"),
    _Kind(_X86 | _ARM | {"sse"}, *_BF16, "", 2),
    _Kind(_ARM, "int8", "int8", "int32", "dotprod", 4, _SDOT),
    _Kind(_ARM, "uint8", "uint8", "int32", "dotprod", 4, _UDOT),
    _Kind(_ARM, "uint8", "int8", "int32", "i8mm", 4, "llvm.aarch64.neon.usdot"),
    _Kind(_ARM, "uint8", "int8", "int32", "dotprod", 4, _SDOT, SIGN_BIT),
    _Kind(frozenset({"avx512"}), *_INT16, "avx512vnni", 2, f"{_VPDPWSSD}.512"),
    _Kind(frozenset({"avx2"}), *_INT16, "avxvnni", 2, f"{_VPDPWSSD}.256"),
    _Kind(frozenset({"avx512"}), *_INT16, "avx512bw", 2, _VPMADDWD[1], adds=False),
    _Kind(frozenset({"avx2"}), *_INT16, "", 2, _VPMADDWD[0], adds=False),
)
# What a sequence needs besides sums, weights and data: a product, and ones to multiply by.
_SEQUENCE_REGISTERS: Final = 2
# A second vector of data, a mask, and a zero that LLVM blends with.
_WIDENING_REGISTERS: Final = 3
# Of multiplications of pairs, what their additions leave: 25.8 of 32 products a cycle on a Zen 4.
_APART_SHARE: Final = 0.8


def find_dot_unit(
    numerics: Numerics,
    isa: str,
    features: tuple[str, ...],
    vector_bytes: int,
    registers: int,
    per_cycle: int,
    integer_multiplies: float = 2.0,
) -> DotUnit | None:
    """Return the unit that a CPU has for ``numerics``; None if it has none.

    Parameters
    ----------
    isa, features, vector_bytes, registers
        See `neocpu.schedules.vocabulary.target.CpuTarget`.
    per_cycle : int
        Multiply-adds of whole vectors that a core starts per cycle; as many of the others, as on
        all CPUs that were looked at.
    integer_multiplies : float
        Multiplications of 16-bit integers that it starts per cycle, which bound sequences.
    """
    data = numerics.sum if numerics.computes_in_float32 else numerics.data
    types = (data, numerics.weights, numerics.sum)
    for kind in _KINDS:
        fits = isa in kind.isas and (not kind.feature or kind.feature in features)
        if fits and types == (kind.data, kind.weights, kind.sum):
            unit = DotUnit(
                kind.group,
                vector_bytes // bytes_of(kind.sum),
                per_cycle,
                LATENCY,
                vector_bytes,
                registers,
                broadcasts=isa in ("avx512", "neon"),
                by_lane=isa == "neon",
                intrinsic=kind.intrinsic,
                offset=kind.offset,
                adds=kind.adds,
                is_symmetric=kind.data == kind.weights or kind.offset != 0,
            )
            if unit.widens_floats:
                return _widening(unit)
            if not unit.adds:
                return _adding_apart(unit, integer_multiplies)
            return _sequence(unit, numerics, integer_multiplies) if unit.is_sequence else unit
    return None


def _widening(unit: DotUnit) -> DotUnit:
    """Return the unit of two multiply-adds of float32, whose operands take two registers each."""
    return replace(
        unit,
        per_cycle=unit.per_cycle / 2,
        registers=unit.registers - _WIDENING_REGISTERS,
        broadcasts=False,
        by_lane=False,
        operand_vectors=2,
    )


def _adding_apart(unit: DotUnit, multiplies: float) -> DotUnit:
    """Return the unit of a multiplication of pairs and an addition of what it makes."""
    return replace(
        unit,
        per_cycle=multiplies * _APART_SHARE,
        registers=unit.registers - 1,
        broadcasts=False,
    )


def _sequence(unit: DotUnit, numerics: Numerics, multiplies: float) -> DotUnit:
    """Return the unit of two multiplications: VPMADDUBSW and VPMADDWD, or the latter twice.

    The former adds two products up in 16 bits, which weights that are not known to be small
    enough overflow; these are widened, into two vectors.
    """
    return replace(
        unit,
        per_cycle=multiplies / 2,
        registers=unit.registers - _SEQUENCE_REGISTERS,
        broadcasts=False,
        int16_sums=numerics.int16_sums,
        operand_vectors=1 if numerics.int16_sums else 2,
    )
