"""Options of quantisation, checked once for the command line and Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.option_words import CORRECTIONS, METHODS, Correction, RangeMethod
from neocpu.quantiser.pictures import Preprocessing
from neocpu.schedules.vocabulary.numerics import INT16_SUMS

AUTO: Final = "auto"
"""Name of the method that takes, for each tensor, the method that changes the outputs least."""

DEFAULT_SAMPLES: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantiseOptions:
    """The options of `neocpu.quantize` about the use of the data and the rounding.

    Attributes
    ----------
    samples : int
        Largest number of calibration samples.
    method : str
        Method that finds the ranges of tensors, one of `METHODS`.
    percentile : float
        Share of values, in percent, that method ``percentile`` keeps within the range.
    symmetric : bool
        Whether zero is in the middle of the ranges of tensors that have both signs.
    per_channel : bool
        Whether each output channel of weights has a scale of its own.
    int16_sums : int
        Number of products whose sum fits 16 bits: see `neocpu.quantiser.stored_tensors.store`.
    correction : str
        Correction of biases for rounded weights, one of `CORRECTIONS`.
    equalise : bool
        Whether layers are equalised first.
    exclude : tuple of str
        Nodes, or types of operators, that stay in float32.
    wide : tuple of str
        Tensors to quantise to 16 bits.
    pictures : Preprocessing
        The way pictures become inputs.
    """

    samples: int = DEFAULT_SAMPLES
    method: RangeMethod = "percentile"
    percentile: float = 99.99
    symmetric: bool = False
    per_channel: bool = True
    int16_sums: int = 4
    correction: Correction = "weights"
    equalise: bool = False
    exclude: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    pictures: Preprocessing = field(default_factory=Preprocessing)

    def __post_init__(self) -> None:
        _known("method", self.method, METHODS)
        _known("correction", self.correction, CORRECTIONS)
        if self.int16_sums not in (0, *INT16_SUMS):
            known = ", ".join(map(str, (0, *INT16_SUMS)))
            raise UsageError(f"int16_sums must be one of {known}, got {self.int16_sums!r}")
        if self.correction == "mean-variance" and not self.per_channel:
            raise UsageError(
                "correction by mean-variance needs a scale per channel: ask for these, or choose "
                "another correction"
            )
        if not isinstance(self.samples, int) or self.samples < 1:
            raise UsageError(f"samples must be a whole number, 1 or more, got {self.samples!r}")
        if not 50 < self.percentile <= 100:
            raise UsageError(f"percentile must be above 50 and at most 100, got {self.percentile}")


def _known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"unknown {what} {name!r}; known: {', '.join(known)}{hint}")
