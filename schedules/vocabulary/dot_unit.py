"""Dot units: the instructions that multiply and add, by the numerics they are for."""

from __future__ import annotations

from dataclasses import dataclass

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.numerics import Numerics

# Cycles before a sum can be added to again: of float32 on all CPUs that were looked at, and of
# VPDPBUSD and SDOT as their vendors' guides and InstLatx64 have it.
LATENCY = 4.0


@dataclass(frozen=True, slots=True)
class DotUnit:
    """An instruction that adds products to every lane of a vector of sums.

    Attributes
    ----------
    group : int
        Products it adds to each sum: of so many neighbouring input channels.
    lanes : int
        Sums in its vector.
    per_cycle : int
        How many a core starts per cycle.
    latency : float
        Cycles before a sum can be added to again.
    vector_bytes : int
        Of a vector of sums, or of weights.
    registers : int
        Vector registers that the CPU has.
    broadcasts : bool
        Whether it broadcasts one operand itself: from memory, or from a lane.
    by_lane : bool
        Whether it takes one lane of a vector (one group of it) as a factor of all.
    intrinsic : str
        LLVM's name of it: ``(sums, data, weights)`` to sums. Empty where a multiplication and an
        addition say it.
    """

    group: int
    lanes: int
    per_cycle: int
    latency: float
    vector_bytes: int
    registers: int
    broadcasts: bool
    by_lane: bool
    intrinsic: str = ""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one instruction."""
        return self.group * self.lanes


@dataclass(frozen=True, slots=True)
class _Kind:
    """Numerics of an instruction: element types of data, weights and sums; its feature, and group.

    A feature of "" is in every CPU of the instruction set. Last comes LLVM's name of it.
    """

    isas: frozenset[str]
    data: str
    weights: str
    sum: str
    feature: str
    group: int
    intrinsic: str = ""


_X86 = frozenset({"avx512", "avx2"})
_ARM = frozenset({"neon"})
# On 32-byte vectors of a CPU with AVX-VNNI alone LLVM gives it its other encoding.
_VPDPBUSD = "llvm.x86.avx512.vpdpbusd"
_KINDS = (
    _Kind(_X86 | _ARM | {"sse"}, "float32", "float32", "float32", "", 1),
    _Kind(frozenset({"avx512"}), "uint8", "int8", "int32", "avx512vnni", 4, f"{_VPDPBUSD}.512"),
    _Kind(frozenset({"avx2"}), "uint8", "int8", "int32", "avxvnni", 4, f"{_VPDPBUSD}.256"),
    _Kind(_ARM, "int8", "int8", "int32", "dotprod", 4, "llvm.aarch64.neon.sdot"),
    _Kind(_ARM, "uint8", "uint8", "int32", "dotprod", 4, "llvm.aarch64.neon.udot"),
    _Kind(_ARM, "uint8", "int8", "int32", "i8mm", 4, "llvm.aarch64.neon.usdot"),
)


def find_dot_unit(
    numerics: Numerics,
    isa: str,
    features: tuple[str, ...],
    vector_bytes: int,
    registers: int,
    per_cycle: int,
) -> DotUnit | None:
    """Return the unit that a CPU has for ``numerics``; None if it has none.

    Parameters
    ----------
    isa, features, vector_bytes, registers
        See `neocpu.schedules.vocabulary.target.CpuTarget`.
    per_cycle : int
        Multiply-adds of whole vectors that a core starts per cycle; as many of the others, as on
        all CPUs that were looked at.
    """
    types = (numerics.data, numerics.weights, numerics.sum)
    for kind in _KINDS:
        fits = isa in kind.isas and (not kind.feature or kind.feature in features)
        if fits and types == (kind.data, kind.weights, kind.sum):
            lanes = vector_bytes // bytes_of(kind.sum)
            by_lane = isa == "neon"
            broadcasts = isa in ("avx512", "neon")
            return DotUnit(
                kind.group,
                lanes,
                per_cycle,
                LATENCY,
                vector_bytes,
                registers,
                broadcasts,
                by_lane,
                kind.intrinsic,
            )
    return None
