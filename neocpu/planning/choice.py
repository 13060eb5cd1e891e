"""One way to run an operator, and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.scheme import Scheme

ESTIMATED: Final = "estimated"
"""The source of a cost that no record has."""
IN_PLACE: Final = "in place"
"""The source of the cost of an operator that needs no kernel."""


def is_estimated(source: str) -> bool:
    """Whether seconds from ``source`` are estimates, perhaps of a kernel between other layouts."""
    return source.startswith(ESTIMATED)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and their source: `ESTIMATED`, a `Measured.source`, or `IN_PLACE`."""

    seconds: float
    source: str = ESTIMATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to run an operator.

    Attributes
    ----------
    scheme : Scheme or None
        The scheme of a convolution; None for other operators.
    source : str
        `ESTIMATED`, or the `Measured.source` of the records that the seconds come from. Either
        ends with ``and folded`` if the kernel is known between other layouts.
    weight_bytes : int
        The bytes of the packed weights and per-channel operands.
    day : str
        The day of the newest record, as ``2026-11-23``; empty if there are no records.
    runner_up : Choice or None
        The next best way to run a convolution between the same formats.
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
