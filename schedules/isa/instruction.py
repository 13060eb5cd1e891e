"""The properties of an instruction that adds products to sums: ``depth`` of each of ``rows`` rows
of data and ``columns`` columns of weights, M x N x K, with M = 1 for vector units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]
Semantics: TypeAlias = Callable[[Array, Array, Array], Array]
"""A function of data (M, K), weights (N, K) and sums (M, N) that returns the new sums; bfloat16 is
given as its bits."""

LATENCY: Final = 4.0
"""The number of cycles before a sum can be added to again: for float32 on all CPUs that were
measured, and for VPDPBUSD and SDOT according to their vendors' guides and InstLatx64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction, or a sequence that does the work of one.

    - `name`: the name that assemblers use.
    - `isas`: the vector instruction sets that it belongs with; see `CpuTarget.isa`.
    - `features`: the features that a CPU needs besides these, by LLVM names.
    - `data`, `weights`, `sum`: the element types.
    - `group`: the number of products of adjacent input channels that lie side by side in a
      register.
    - `rows`, `columns`, `depth`: M, N and K, the number of products added to a sum. 0 columns means
      as many as a vector has sums; a depth of 0 means one group.
    - `semantics`: the function that computes its results bit by bit.
    - `intrinsic`: the LLVM intrinsic; empty for a sequence, and where a multiplication and an
      addition have the same meaning.
    - `offset`: the number to subtract from data first.
    - `adds`: whether it adds its products to the sums; otherwise an addition follows.
    - `latency`: the number of cycles before a sum can be added to again.
    - `rates`: the measured number that a core starts per cycle, by CPU.
    - `rate`: the same number for other CPUs; 0 means as many as there are multiply-add units.
    - `in_tiles`: whether operands and sums lie in tile registers, which the system has to permit.
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
        return self.data == self.weights or self.offset != 0

    def fits(self, types: tuple[str, str, str], isa: str, features: frozenset[str]) -> bool:
        """Return whether a CPU has it, for these types of data, weights and sums."""
        return (
            isa in self.isas
            and types == (self.data, self.weights, self.sum)
            and features.issuperset(self.features)
        )
