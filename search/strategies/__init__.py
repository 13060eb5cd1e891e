"""Search strategies: which candidates to measure next. One file each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.search.measuring.measure import Request
from neocpu.tuning_db.record import Record, Workload


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """What is known of a workload.

    Attributes
    ----------
    counts : tuple of int
        How many times each network that is tuned runs it.
    candidates : tuple of Scheme
        Legal schemes not measured yet, best estimate first.
    records : mapping of Scheme to Record
        Legal schemes that were measured, failed ones too.
    estimates : mapping of Scheme to float
        Analytic seconds of every legal scheme.
    """

    workload: Workload
    counts: tuple[int, ...]
    candidates: tuple[Scheme, ...]
    records: Mapping[Scheme, Record]
    estimates: Mapping[Scheme, float]

    @property
    def best(self) -> float:
        """Fastest measured seconds; ``inf`` if nothing has worked yet."""
        return min((record.result.best for record in self.records.values()), default=math.inf)

    @property
    def seconds(self) -> float:
        """The fastest measured seconds; the best estimate if nothing has worked."""
        best = self.best
        return best if best < math.inf else min(self.estimates.values())

    @property
    def stake(self) -> float:
        """Seconds all networks together spend in this workload, as far as is known."""
        return sum(self.counts) * self.seconds

    @property
    def has_choice(self) -> bool:
        """Whether there is more than one legal scheme."""
        return len(self.estimates) > 1


class Strategy(Protocol):
    """Picks candidates. Asked again after each batch, knowing all that was measured so far.

    Attributes
    ----------
    gain_left : float or None
        When it was asked last, the share of a network's time that it expected of what was not
        measured, at most of all networks; None if it expects nothing.
    """

    gain_left: float | None

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        """Return up to ``count`` distinct candidates of all workloads, the most promising first.

        None at all says that nothing else is worth measuring.
        """
