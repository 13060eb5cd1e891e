"""Accuracy levels: bounds on norm-wise relative errors, ``‖y - r‖ / ‖r‖`` in the 2-norm over one
tensor with ``r`` in float64, of a network's outputs and of its kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Admission:
    """The set of convolution kernels that a plan may choose from.

    `name` is a phrase that says what is left out, as in ``compiled again without Winograd and
    Strassen``. `error_factor` is the largest error of a kernel, as a multiple of direct float32
    summation's (`registry.error_bound`). `longest_sum` is the largest number of products that a
    convolution may add up one by one; longer sums are split (`registry.exact_form`).
    """

    name: str
    error_factor: float
    longest_sum: float = math.inf

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SumBound:
    """A bound that may prove an integer algorithm exact: no data give a sum of more than `largest`
    in absolute value, and sums below `limit` are exact.
    """

    largest: int
    limit: int

    @property
    def holds(self) -> bool:
        """Return whether the results equal those of direct convolution, bit for bit."""
        return self.largest < self.limit

    def to_json(self) -> dict[str, int]:
        return {"largest_sum": self.largest, "limit": self.limit}


EVERY_TILE: Final = Admission("with Winograd tiles of any size", 25.0)
# Tiles of up to four pixels for 3x3 kernels; F(5x5) and F(6x6) err two to four times as much.
SMALL_TILES: Final = Admission("with small Winograd tiles alone", 6.0)
# Errors that another order of the same sums explains, and no more. Each pixel is then computed from
# its own window alone, so that an infinity or a NaN stays where direct convolution has it.
NO_TILES: Final = Admission("without Winograd and Strassen", 1.25)
# Long sums are split for SSD's scores, which err eight times as much as their logits: 1.2e-5.
SHORT_SUMS: Final = Admission(
    "without Winograd and Strassen, with sums in parts", 1.25, longest_sum=512
)

LADDER: Final = (EVERY_TILE, SMALL_TILES, NO_TILES, SHORT_SUMS)
"""Admissions from the fastest plans to the most exact: after a broken promise comes the next."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A level of accuracy: the promised bound, and the kernels that are tried first.

    - `name`: the name that ``--accuracy`` uses.
    - `bound`: the largest error of a network's output that passes verification.
    - `admission`: the kernels of the first plan, one of `LADDER`.
    - `coarseness`: the rounding of each result as a multiple of float32's. Above 1, ``bound`` is
      for each operator, and outputs are bounded by the error of a network that rounds so.
    - `limit`: an additional bound on the errors of outputs, set by the user as ``--max-error``.
    """

    name: str
    bound: float
    admission: Admission
    coarseness: float = 1.0
    limit: float = math.inf

    @property
    def admissions(self) -> tuple[Admission, ...]:
        """Return the first plan's admission and all stricter ones, in the order they are tried."""
        return LADDER[LADDER.index(self.admission) :]

    def __str__(self) -> str:
        return self.name

    def to_json(self) -> dict[str, str | float]:
        limit = {} if self.limit == math.inf else {"limit": self.limit}
        return {"name": self.name, "bound": self.bound, **limit}


# The errors of layers add up like independent ones. Direct summation's come to 1e-7 to 3e-6 over
# most networks, so that the bound holds even if every kernel errs 25 times as much; verification
# has the last word.
DEFAULT: Final = Accuracy("default", 1e-4, EVERY_TILE)
STRICT: Final = Accuracy("strict", 5e-6, SHORT_SUMS)

# ``--precision bf16``: data, weights and results have 8 bits, and err by up to half a unit each.
BFLOAT16: Final = Accuracy("bfloat16", 2.0**-8, EVERY_TILE, coarseness=2.0**16)

LEVELS: Final = {level.name: level for level in (DEFAULT, STRICT)}


def parse_accuracy(name: str) -> Accuracy:
    """Return the level of that name. Raises UsageError if there is no level of that name."""
    if name not in LEVELS:
        hint = did_you_mean(name, LEVELS)
        raise UsageError(f"unknown --accuracy {name!r}; known: {', '.join(LEVELS)}{hint}")
    return LEVELS[name]
