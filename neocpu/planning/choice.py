"""One way to run an operator, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.scheme import Scheme

IN_PLACE: Final = "in place"
"""The source of the cost of what no kernel does."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and where they come from: ``estimated``, a `Measured.source`, or `IN_PLACE`."""

    seconds: float
    source: str = "estimated"


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run an operator.

    Attributes
    ----------
    scheme : Scheme or None
        For convolutions only.
    source : str
        ``estimated``, or the `Measured.source` of the records it was chosen by; either ends with
        ``and folded`` for a kernel that is known between other layouts.
    weight_bytes : int
        Its weights and per-channel operands, as they are packed.
    """

    in_format: Format
    out_format: Format
    seconds: float
    source: str = "estimated"
    scheme: Scheme | None = None
    weight_bytes: int = 0

    def __str__(self) -> str:
        if self.scheme is not None:
            return str(self.scheme)
        return str(self.out_format)
