"""How a run of a module compares with what the model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.vocabulary.accuracy import Accuracy
from neocpu.verification.reference.comparison import Comparison

REFERENCE: Final = "numpy in float64"
"""What the truth is from, wherever that can run a model."""

FLOAT32_FACTOR: Final = 4.0
"""How many times as much as numpy in float32 an artifact may err where no plan keeps the promise.

Both sum the same products, numpy blocked and ours in parts or one by one; `vocabulary.accuracy`
says that makes a factor of one to five of a single long sum, and over a network they measure alike.
"""

ROUNDING: Final = 1e-2
"""Norm-wise error above which it is not rounding's, but a wrong kernel's."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run compares with the truth.

    Attributes
    ----------
    found : Comparison
    kept : bool
        Whether it is as exact as was promised.
    float32_error : float or None
        What numpy errs in float32, norm-wise; None where nobody had to know.
    oracle : str
        What the truth is from.
    reason : str
        Why it is not from the reference; empty if it is.
    """

    found: Comparison
    kept: bool
    float32_error: float | None = None
    oracle: str = REFERENCE
    reason: str = ""

    def is_rounding(self, accuracy: Accuracy) -> bool:
        """Whether a broken promise looks like rounding: all of an output errs, and not by much."""
        return accuracy.bound < self.found.norm_error <= ROUNDING

    @property
    def is_accepted(self) -> bool:
        """Whether the outputs are right, as exact as was promised or not."""
        return self.kept or self.as_exact_as_float32

    @property
    def as_exact_as_float32(self) -> bool:
        """Whether numpy in float32 is no better, but for the order of its sums."""
        error = self.float32_error
        return error is not None and (
            self.found.ok and self.found.norm_error <= FLOAT32_FACTOR * error
        )
