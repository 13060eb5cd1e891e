"""The verdict on a run of a module, compared with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.vocabulary.accuracy import Accuracy
from neocpu.verification.reference.comparison import Comparison

REFERENCE: Final = "numpy in float64"
"""Source of the truth wherever it can run a model."""

FLOAT32_FACTOR: Final = 4.0
"""Largest error of an artifact, as a multiple of that of numpy in float32, if no plan keeps the
promise.

Both sum the same products, numpy in blocks and ours in parts or one by one. `vocabulary.accuracy`
says that this makes a factor of one to five in a single long sum. Over a network, the two measure
about the same.
"""

ROUNDING: Final = 1e-2
"""Norm-wise error above which the cause is not rounding, but a wrong kernel."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing a run with the truth, and whether the run is as exact as promised.

    ``float32_error`` is the norm-wise error of numpy in float32; None if it was not needed. The
    reason says why the oracle is not the reference.
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
        """Whether the outputs are right: as exact as promised, or as exact as float32."""
        return self.kept or self.as_exact_as_float32

    @property
    def as_exact_as_float32(self) -> bool:
        """Whether the outputs are as exact as numpy in float32, except for the order of sums."""
        error = self.float32_error
        return error is not None and (
            self.found.ok and self.found.norm_error <= FLOAT32_FACTOR * error
        )
