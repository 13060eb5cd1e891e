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
    """A workload as a strategy sees it."""

    workload: Workload
    counts: tuple[int, ...]  # the number of times that each network runs it
    candidates: tuple[Scheme, ...]  # legal schemes not measured yet, best estimate first
    records: Mapping[Scheme, Record]  # legal schemes that were measured, failed ones too
    estimates: Mapping[Scheme, float]  # analytic seconds of every legal scheme

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
        """Seconds that all networks spend in this workload in sum, as far as is known."""
        return sum(self.counts) * self.seconds

    @property
    def has_choice(self) -> bool:
        return len(self.estimates) > 1


class Strategy(Protocol):
    """Picks candidates. It is asked again after each batch, with all measurements so far."""

    # The share of a network's time that it last expected to gain by further measurements, the
    # largest one of all networks; None if it expects nothing.
    gain_left: float | None

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        """Return up to ``count`` distinct candidates of all workloads, the most promising first;
        none if nothing else is worth measuring.
        """
