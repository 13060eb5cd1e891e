"""The records of one workload in the tuning databases, as plans use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neocpu.schedules.vocabulary.scheme import Scheme

# The source of records of this very CPU.
MEASURED = "measured"
# The source of records of a similar workload: the difference hardly changes the seconds.
BORROWED = "borrowed"


@dataclass(frozen=True, slots=True)
class Measured:
    """The records of a workload."""

    # The best known seconds of each measured scheme; None for a scheme that failed.
    seconds: Mapping[Scheme, float | None] = field(default_factory=dict)
    # ``measured``; ``measured on znver4 with 2 threads`` if the records are of a related CPU;
    # ``borrowed`` or ``borrowed, measured on ...`` if they are of a similar workload.
    source: str = MEASURED
    day: str = ""  # day of the newest record, as ``2026-11-23``
