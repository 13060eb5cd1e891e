"""Search strategies: which of a workload's candidates to measure next. One file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from neocpu.schedules.scheme import Scheme
from neocpu.tuning_db.record import Record, Workload


class Strategy(Protocol):
    """Picks candidates. Asked again for each round, knowing all that was measured so far."""

    def propose(
        self,
        workload: Workload,
        candidates: Sequence[Scheme],
        measured: Mapping[Scheme, Record],
        count: int,
    ) -> Sequence[Scheme]:
        """Return up to ``count`` of ``candidates``, the most promising first.

        ``candidates`` are the legal schemes not measured yet, best estimate first.
        """
