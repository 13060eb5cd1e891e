"""Dot units: the multiply-add instructions of a CPU, by the numerics they compute with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.isa.catalogue import instructions
from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.vocabulary.numerics import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class DotUnit:
    """A multiply-add instruction, or a sequence of instructions, on one CPU.

    - `instruction`: the properties that are the same on all CPUs.
    - `lanes`: the sums in its vector, or in a row of its tile.
    - `per_cycle`: how many a core starts per cycle.
    - `vector_bytes`: the bytes of a vector of sums, or of weights.
    - `registers`: the CPU's vector registers, less those that a sequence needs for itself, or a
      matrix unit's tile registers.
    - `broadcasts`: whether it broadcasts one operand itself, from memory or from a vector lane.
    - `by_lane`: whether it multiplies by one lane (one group) of a vector.
    - `int16_sums`: the products that a sequence may add in 16 bits; see `Numerics.int16_sums`.
    - `operand_vectors`: the registers that one step's vector of weights takes.
    """

    instruction: Instruction
    lanes: int
    per_cycle: float
    vector_bytes: int
    registers: int
    broadcasts: bool = False
    by_lane: bool = False
    int16_sums: int = 0
    operand_vectors: int = 1

    @property
    def group(self) -> int:
        """The number of products added to each sum, from as many adjacent input channels."""
        return self.instruction.group

    @property
    def intrinsic(self) -> str:
        """The LLVM intrinsic ``(sums, data, weights) -> sums``; see `Instruction.intrinsic`."""
        return self.instruction.intrinsic

    @property
    def latency(self) -> float:
        """The number of cycles before a sum can be added to again."""
        return self.instruction.latency

    @property
    def offset(self) -> int:
        """The number subtracted from data first, for instructions that take signed data."""
        return self.instruction.offset

    @property
    def adds(self) -> bool:
        """Whether the instruction adds its products to the sums; otherwise an addition follows."""
        return self.instruction.adds

    @property
    def is_symmetric(self) -> bool:
        """Whether the instruction takes data and weights of one type, in either order."""
        return self.instruction.is_symmetric

    @property
    def broadcasts_from_memory(self) -> bool:
        """Whether a factor may be one element of memory, in all lanes."""
        return self.broadcasts and not self.by_lane

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates of one instruction."""
        made = self.instruction
        return made.rows * (made.columns or self.lanes) * (made.depth or made.group)

    @property
    def is_sequence(self) -> bool:
        """Whether separate instructions on 16-bit integers compute the products and the sums."""
        return self.group == _BYTES_OF_A_SUM and not self.intrinsic

    @property
    def widens_floats(self) -> bool:
        """Whether pairs of 16-bit floats are converted to float32 before they are multiplied."""
        return self.group == _HALVES_OF_A_SUM and not self.intrinsic

    def adding(self, groups: int) -> DotUnit:
        """Return a sequence that first adds the products of ``groups`` groups in 16 bits. It
        multiplies twice for a single group, otherwise once for each group and once for all.
        """
        if groups == 1:
            return self
        assert self.is_sequence, self
        assert 2 * groups <= self.int16_sums, self
        faster = self.per_cycle * 2 * groups / (groups + 1)
        return replace(self, per_cycle=faster, operand_vectors=groups)


TILES: Final = 8
"""The number of tile registers of a CPU that has any."""

_BYTES_OF_A_SUM: Final = 4
_HALVES_OF_A_SUM: Final = 2
# Registers of a sequence besides sums, weights and data: a product, and ones to multiply by.
_SEQUENCE_REGISTERS: Final = 2
# Registers for a second vector of data, a mask, and a zero that LLVM blends with.
_WIDENING_REGISTERS: Final = 3
# The share of multiplications that additions leave: 25.8 of 32 products a cycle on a Zen 4.
_APART_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnits:
    """The vector units of a CPU.

    - `mcpu`, `isa`: see `neocpu.schedules.vocabulary.target.CpuTarget`.
    - `features`: all features of the CPU, by their LLVM names.
    - `vector_bytes`, `registers`: the bytes of a vector register, and the number of registers.
    - `per_cycle`: the float32 multiply-adds of whole vectors that a core starts per cycle. Other
      instructions have the same rate, as measured on all CPUs, unless their own is known.
    - `integer_multiplies`: the 16-bit integer multiplications that a core starts per cycle, which
      bound sequences.
    """

    mcpu: str
    isa: str
    features: frozenset[str]
    vector_bytes: int
    registers: int
    per_cycle: int
    integer_multiplies: float = 2.0

    def units(self, numerics: Numerics) -> tuple[DotUnit, ...]:
        """Return all units that compute with ``numerics``, the preferred one first."""
        data = numerics.sum if numerics.computes_in_float32 else numerics.data
        types = (data, numerics.weights, numerics.sum)
        found = instructions(types, self.isa, self.features)
        return tuple(self._unit(each, numerics) for each in found)

    def _unit(self, instruction: Instruction, numerics: Numerics) -> DotUnit:
        is_matrix = instruction.rows > 1
        unit = DotUnit(
            instruction=instruction,
            lanes=self.vector_bytes // bytes_of(instruction.sum),
            per_cycle=instruction.rates.get(self.mcpu, instruction.rate or self.per_cycle),
            vector_bytes=self.vector_bytes,
            registers=TILES if instruction.in_tiles else self.registers,
            broadcasts=self.isa in ("avx512", "neon") and not is_matrix,
            by_lane=self.isa == "neon" and not is_matrix,
        )
        if unit.widens_floats:
            return _widening(unit)
        if not unit.adds:
            return _adding_apart(unit, self.integer_multiplies)
        if unit.is_sequence:
            return _sequence(unit, numerics, self.integer_multiplies)
        return unit


def _widening(unit: DotUnit) -> DotUnit:
    return replace(
        unit,
        per_cycle=unit.per_cycle / 2,
        registers=unit.registers - _WIDENING_REGISTERS,
        broadcasts=False,
        by_lane=False,
        operand_vectors=2,
    )


def _adding_apart(unit: DotUnit, multiplies: float) -> DotUnit:
    return replace(
        unit, per_cycle=multiplies * _APART_SHARE, registers=unit.registers - 1, broadcasts=False
    )


def _sequence(unit: DotUnit, numerics: Numerics, multiplies: float) -> DotUnit:
    """Return the unit of two multiplications: VPMADDUBSW and VPMADDWD, or VPMADDWD twice with
    weights widened into two vectors, which may be too large to add two products in 16 bits.
    """
    return replace(
        unit,
        per_cycle=multiplies / 2,
        registers=unit.registers - _SEQUENCE_REGISTERS,
        broadcasts=False,
        int16_sums=numerics.int16_sums,
        operand_vectors=1 if numerics.int16_sums else 2,
    )
