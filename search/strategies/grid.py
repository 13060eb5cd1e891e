"""The paper's local search (§3.3.1): every candidate, here in the order of the estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neocpu.schedules.scheme import Scheme
from neocpu.tuning_db.record import Record, Workload


class GridStrategy:
    """Takes the candidates as they come."""

    def propose(
        self,
        workload: Workload,
        candidates: Sequence[Scheme],
        measured: Mapping[Scheme, Record],
        count: int,
    ) -> Sequence[Scheme]:
        """Return the ``count`` candidates of the best estimates."""
        return candidates[:count]
