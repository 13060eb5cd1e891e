"""Random search: the yardstick for every strategy that claims to know better."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from neocpu.schedules.scheme import Scheme
from neocpu.tuning_db.record import Record, Workload


class RandomStrategy:
    """Draws candidates without replacement; the same ``seed`` draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(
        self,
        workload: Workload,
        candidates: Sequence[Scheme],
        measured: Mapping[Scheme, Record],
        count: int,
    ) -> Sequence[Scheme]:
        """Return ``count`` candidates drawn at random."""
        return self._random.sample(list(candidates), min(count, len(candidates)))
