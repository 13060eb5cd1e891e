"""One way to run an operator, its cost, and the records that costs come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    in_format: Format
    out_format: Format
    seconds: float
    # `ESTIMATED`, or the `Measured.source` of the records that the seconds come from. Either ends
    # with ``and folded`` if the kernel is known between other layouts.
    source: str = ESTIMATED
    scheme: Scheme | None = None  # scheme of a convolution; None for other operators
    weight_bytes: int = 0  # bytes of the packed weights and per-channel operands
    day: str = ""  # day of the newest record, as ``2026-11-23``; empty if there are no records
    runner_up: Choice | None = None  # between the same formats

    def __str__(self) -> str:
        if self.scheme is not None:
            return str(self.scheme)
        return str(self.out_format)


MEASURED = "measured"  # of records of this very CPU
BORROWED = "borrowed"  # of a similar workload, whose seconds hardly differ


@dataclass(frozen=True, slots=True)
class Measured:
    # The best known seconds of each measured scheme; None for a scheme that failed.
    seconds: Mapping[Scheme, float | None] = field(default_factory=dict)
    # ``measured``; ``measured on znver4 with 2 threads`` if the records are of a related CPU;
    # ``borrowed`` or ``borrowed, measured on ...`` if they are of a similar workload.
    source: str = MEASURED
    day: str = ""  # day of the newest record, as ``2026-11-23``
