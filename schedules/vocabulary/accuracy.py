"""How exact a compiled network has to be: what its outputs may err, and what its kernels may.

Errors are norm-wise and relative: ``‖y - r‖ / ‖r‖`` in the 2-norm over one tensor, with ``r``
computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Admission:
    """Which convolution kernels a plan may choose.

    Attributes
    ----------
    name : str
        What it does without, as in ``compiled again without Winograd and Strassen``.
    error_factor : float
        Largest error of a kernel, as a multiple of direct float32 summation's
        (`registry.error_bound`).
    longest_sum : float
        Products that a convolution may add up one by one: longer sums are split
        (`registry.exact_form`).
    """

    name: str
    error_factor: float
    longest_sum: float = math.inf

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SumBound:
    """Why an algorithm of integers is exact that would not be of larger sums.

    Attributes
    ----------
    largest : int
        The largest sum in size that any data make.
    limit : int
        What comes out exactly is below it in size.
    """

    largest: int
    limit: int

    @property
    def holds(self) -> bool:
        """Whether the results are those of direct convolution, to the bit."""
        return self.largest < self.limit

    def to_json(self) -> dict[str, int]:
        """JSON form."""
        return {"largest_sum": self.largest, "limit": self.limit}


EVERY_TILE: Final = Admission("with Winograd tiles of any size", 25.0)
# Those of up to four pixels of 3x3 kernels; F(5x5) and F(6x6) err two to four times as much.
SMALL_TILES: Final = Admission("with small Winograd tiles alone", 6.0)
# What another order of the same sums explains, and no more. Each pixel is then computed from its
# own window alone, so that an infinity or a NaN stays where direct convolution has it.
NO_TILES: Final = Admission("without Winograd and Strassen", 1.25)
# Long sums are split for SSD's scores, which err eight times as much as their logits: 1.2e-5
# without.
SHORT_SUMS: Final = Admission(
    "without Winograd and Strassen, with sums in parts", 1.25, longest_sum=512
)

LADDER: Final = (EVERY_TILE, SMALL_TILES, NO_TILES, SHORT_SUMS)
"""From the fastest plans to the most exact ones: a plan that breaks its promise descends."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A level of accuracy: what is promised, and what is tried first to keep it.

    Attributes
    ----------
    name : str
        As ``--accuracy`` spells it.
    bound : float
        Largest error of a network's output that verification lets pass.
    admission : Admission
        Of the first plan, one of `LADDER`.
    coarseness : float
        How many times as much as float32 each result is rounded. Above 1 the bound is each
        operator's, and outputs are held to what a network errs all of whose results are.
    limit : float
        Largest error of outputs that the user allows beside that, as ``--max-error`` has it.
    """

    name: str
    bound: float
    admission: Admission
    coarseness: float = 1.0
    limit: float = math.inf

    @property
    def admissions(self) -> tuple[Admission, ...]:
        """The first plan's and all stricter ones, in the order in which they are tried."""
        return LADDER[LADDER.index(self.admission) :]

    def __str__(self) -> str:
        return self.name

    def to_json(self) -> dict[str, str | float]:
        """JSON form."""
        limit = {} if self.limit == math.inf else {"limit": self.limit}
        return {"name": self.name, "bound": self.bound, **limit}


# The errors of layers add up like independent ones. Direct summation's come to 1e-7 to 3e-6 over
# most networks, so that the bound holds even if every kernel errs 25 times as much; verification
# has the last word.
DEFAULT: Final = Accuracy("default", 1e-4, EVERY_TILE)
STRICT: Final = Accuracy("strict", 5e-6, SHORT_SUMS)

# With ``--precision bf16``. Data, weights and results have 8 bits, and err half a unit each.
BFLOAT16: Final = Accuracy("bfloat16", 2.0**-8, EVERY_TILE, coarseness=2.0**16)

LEVELS: Final = {level.name: level for level in (DEFAULT, STRICT)}


def parse_accuracy(name: str) -> Accuracy:
    """Return the level of that name.

    Raises
    ------
    UsageError
        If there is none.
    """
    if name not in LEVELS:
        hint = did_you_mean(name, LEVELS)
        raise UsageError(f"unknown --accuracy {name!r}; known: {', '.join(LEVELS)}{hint}")
    return LEVELS[name]
