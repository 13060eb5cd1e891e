"""One way to run an operator, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.scheme import Scheme

ESTIMATED: Final = "estimated"
"""The source of what no record tells."""
IN_PLACE: Final = "in place"
"""The source of the cost of what no kernel does."""


def is_estimated(source: str) -> bool:
    """Whether seconds from ``source`` are estimates, be it of a kernel between other layouts."""
    return source.startswith(ESTIMATED)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and where they come from: `ESTIMATED`, a `Measured.source`, or `IN_PLACE`."""

    seconds: float
    source: str = ESTIMATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to run an operator.

    Attributes
    ----------
    scheme : Scheme or None
        For convolutions only.
    source : str
        `ESTIMATED`, or the `Measured.source` of the records it was chosen by; either ends with
        ``and folded`` for a kernel that is known between other layouts.
    weight_bytes : int
        Its weights and per-channel operands, as they are packed.
    day : str
        When the newest of its records was made, as ``2026-11-23``; empty if there are none.
    runner_up : Choice or None
        Of a convolution, the next best way to run it between the same formats.
    """

    in_format: Format
    out_format: Format
    seconds: float
    source: str = ESTIMATED
    scheme: Scheme | None = None
    weight_bytes: int = 0
    day: str = ""
    runner_up: Choice | None = None

    def __str__(self) -> str:
        if self.scheme is not None:
            return str(self.scheme)
        return str(self.out_format)
