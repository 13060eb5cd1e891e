"""What the tuning databases tell a plan of one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neocpu.schedules.vocabulary.scheme import Scheme

# The source of records of this very CPU.
MEASURED = "measured"
# That of records of a workload which differs in what hardly costs.
BORROWED = "borrowed"


@dataclass(frozen=True, slots=True)
class Measured:
    """What the tuning databases know of a workload.

    Attributes
    ----------
    seconds : mapping
        Best known seconds of each measured scheme; None for one that failed.
    source : str
        ``measured``, ``measured on znver4 with 2 threads`` where the records are a relative's,
        ``borrowed`` or ``borrowed, measured on ...`` where they are a similar workload's.
    day : str
        When the newest of them was made, as ``2026-11-23``.
    """

    seconds: Mapping[Scheme, float | None] = field(default_factory=dict)
    source: str = MEASURED
    day: str = ""
