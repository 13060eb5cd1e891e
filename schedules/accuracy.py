"""How exact a compiled network has to be: what its kernels may err, and what its outputs may.

Errors are norm-wise and relative: ``‖y - r‖ / ‖r‖`` in the 2-norm over one tensor, with ``r``
computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neocpu.schedules.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A level of accuracy.

    Attributes
    ----------
    name : str
        As ``--accuracy`` spells it.
    bound : float
        Largest error of a network's output that verification lets pass.
    error_factor : float
        Largest error of a convolution kernel, as a multiple of direct float32 summation's, with
        which it may be chosen (`registry.error_bound`).
    longest_sum : float
        Products that a convolution may add up one by one: longer sums are split
        (`registry.exact_form`).
    """

    name: str
    bound: float
    error_factor: float
    longest_sum: float

    def __str__(self) -> str:
        return self.name


# The errors of layers add up like independent ones. Direct summation's come to 1e-7 to 3e-6 over
# most networks, so that the bound holds even if every kernel errs 25 times as much; verification
# has the last word.
DEFAULT: Final = Accuracy("default", bound=1e-4, error_factor=25.0, longest_sum=math.inf)
# What another order of the same sums explains, and no more. Each pixel is then computed from its
# own window alone, so that an infinity or a NaN stays where direct convolution has it. Long sums
# are split for SSD's scores, which err eight times as much as their logits: 1.2e-5 without.
STRICT: Final = Accuracy("strict", bound=5e-6, error_factor=1.25, longest_sum=512)

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
