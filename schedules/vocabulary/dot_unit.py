"""Dot units: the instructions that a CPU multiplies and adds with, by numerics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.isa.catalogue import instructions
from neocpu.schedules.isa.instruction import Instruction
from neocpu.schedules.vocabulary.numerics import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class DotUnit:
    """An instruction, or a sequence, on a CPU.

    Attributes
    ----------
    instruction : Instruction
        What is the same on all CPUs.
    lanes : int
        Sums in its vector; those of a row of a tile.
    per_cycle : float
        How many a core starts per cycle.
    vector_bytes : int
        Of a vector of sums, or of weights.
    registers : int
        Vector registers that the CPU has, less those that a sequence needs for itself; of a matrix
        unit with tiles, those.
    broadcasts : bool
        Whether it broadcasts one operand itself: from memory, or from a lane.
    by_lane : bool
        Whether it takes one lane of a vector (one group of it) as a factor of all.
    int16_sums : int
        Of a sequence: how many products it may add up in 16 bits, see `Numerics.int16_sums`.
    operand_vectors : int
        Registers that a vector of weights of a step takes.
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
        """Products it adds to each sum of a vector: of so many neighbouring input channels."""
        return self.instruction.group

    @property
    def intrinsic(self) -> str:
        """LLVM's name of it, ``(sums, data, weights)`` to sums; see `Instruction.intrinsic`."""
        return self.instruction.intrinsic

    @property
    def latency(self) -> float:
        """Cycles before a sum can be added to again."""
        return self.instruction.latency

    @property
    def offset(self) -> int:
        """What is taken from data first: the instruction is for signed ones."""
        return self.instruction.offset

    @property
    def adds(self) -> bool:
        """Whether the instruction adds its products to the sums; if not, an addition follows."""
        return self.instruction.adds

    @property
    def is_symmetric(self) -> bool:
        """Whether data and weights are of one type to the instruction, and in either order."""
        return self.instruction.is_symmetric

    @property
    def broadcasts_from_memory(self) -> bool:
        """Whether a factor may be one element of memory, in all lanes."""
        return self.broadcasts and not self.by_lane

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one instruction."""
        made = self.instruction
        return made.rows * (made.columns or self.lanes) * (made.depth or made.group)

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


TILES: Final = 8
"""Tile registers of a CPU that has some."""

_BYTES_OF_A_SUM: Final = 4
_HALVES_OF_A_SUM: Final = 2
# What a sequence needs besides sums, weights and data: a product, and ones to multiply by.
_SEQUENCE_REGISTERS: Final = 2
# A second vector of data, a mask, and a zero that LLVM blends with.
_WIDENING_REGISTERS: Final = 3
# Of multiplications of pairs, what their additions leave: 25.8 of 32 products a cycle on a Zen 4.
_APART_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnits:
    """What a CPU multiplies with.

    Attributes
    ----------
    mcpu, isa : str
        See `neocpu.schedules.vocabulary.target.CpuTarget`.
    features : frozenset of str
        Everything that it has, LLVM names.
    vector_bytes, registers : int
        Of its vectors.
    per_cycle : int
        Multiply-adds of whole vectors that a core starts per cycle; as many of the others, as on
        all CPUs that were looked at, but where their own rate is known.
    integer_multiplies : float
        Multiplications of 16-bit integers that it starts per cycle, which bound sequences.
    """

    mcpu: str
    isa: str
    features: frozenset[str]
    vector_bytes: int
    registers: int
    per_cycle: int
    integer_multiplies: float = 2.0

    def units(self, numerics: Numerics) -> tuple[DotUnit, ...]:
        """Return all that compute with ``numerics``, the preferred first."""
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
