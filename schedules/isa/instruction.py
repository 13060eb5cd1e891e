"""What is known of an instruction that adds products to sums.

It multiplies ``rows`` rows of data by ``columns`` columns of weights, ``depth`` products to a sum:
an M x N x K of M = 1 where a vector unit does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]
Semantics: TypeAlias = Callable[[Array, Array, Array], Array]
"""``(data of (M, K), weights of (N, K), sums of (M, N))`` to the sums: of bfloat16 the bits."""

LATENCY: Final = 4.0
"""Cycles before a sum can be added to again: of float32 on all CPUs that were looked at, and of
VPDPBUSD and SDOT as their vendors' guides and InstLatx64 have it."""

X86: Final = frozenset({"avx512", "avx2"})
ARM: Final = frozenset({"neon"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction, or a sequence that does the work of one.

    Attributes
    ----------
    name : str
        What assemblers call it.
    isas : frozenset of str
        The vector instruction sets, see `CpuTarget.isa`, beside which it stands.
    features : tuple of str
        What a CPU must have besides, LLVM names.
    data, weights, sum : str
        Element types.
    group : int
        Products of neighbouring input channels that lie side by side in a register.
    rows, columns, depth : int
        M, N and K, the products it adds to a sum. 0 columns are as many as a vector has sums, and
        a depth of 0 is a group.
    semantics : callable
        What it computes, bit by bit.
    intrinsic : str
        LLVM's name of it; empty where a multiplication and an addition say it, or a sequence does.
    offset : int
        What is to be taken from data first.
    adds : bool
        Whether it adds its products to the sums; if not, an addition follows.
    latency : float
        Cycles before a sum can be added to again.
    rates : mapping of str to float
        How many a core starts per cycle, by CPU, measured.
    rate : float
        The same of other CPUs; 0 of what has as many as there are units for multiply-adds.
    in_tiles : bool
        Whether operands and sums lie in tile registers, which a system has to permit.
    """

    name: str
    isas: frozenset[str]
    data: str
    weights: str
    sum: str
    group: int
    semantics: Semantics = field(compare=False, repr=False)
    features: tuple[str, ...] = ()
    rows: int = 1
    columns: int = 0
    depth: int = 0
    intrinsic: str = ""
    offset: int = 0
    adds: bool = True
    latency: float = LATENCY
    rates: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
    rate: float = 0.0
    in_tiles: bool = False

    @property
    def is_symmetric(self) -> bool:
        """Whether data and weights are of one type to it."""
        return self.data == self.weights or self.offset != 0

    def fits(self, types: tuple[str, str, str], isa: str, features: frozenset[str]) -> bool:
        """Whether a CPU has it, for data, weights and sums of such types."""
        return (
            isa in self.isas
            and types == (self.data, self.weights, self.sum)
            and features.issuperset(self.features)
        )


def of_all(cpus: tuple[str, ...], rate: float) -> Mapping[str, Any]:
    """Return the same rate for each of some CPUs."""
    return dict.fromkeys(cpus, rate)
