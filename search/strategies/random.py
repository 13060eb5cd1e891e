"""Random search: the yardstick for every strategy that claims to know better."""

from __future__ import annotations

import random
from collections.abc import Sequence

from neocpu.search.measuring.measure import Request
from neocpu.search.strategies import WorkloadState


class RandomStrategy:
    """Draws from all candidates of all workloads; the same ``seed`` draws the same ones."""

    gain_left: float | None = None

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        """Return ``count`` candidates drawn at random."""
        every = [Request(state.workload, s) for state in states for s in state.candidates]
        return self._random.sample(every, min(count, len(every)))
