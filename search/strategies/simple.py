"""Strategies that learn nothing: no search, the paper's grid (§3.3.1), and random draws."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from neocpu.search.measuring.measure import Request
from neocpu.search.strategies import WorkloadState


class AnalyticStrategy:
    """Measures nothing."""

    gain_left: float | None = None

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        return ()


# Candidates of every workload in the first round; each further round takes twice as many.
FIRST_ROUND = 4


class GridStrategy:
    """Goes round the workloads, the costly ones first, until every candidate is measured."""

    gain_left: float | None = None

    def __init__(self) -> None:
        self._round = FIRST_ROUND
        self._queue: deque[Request] = deque()

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        if not self._queue:
            for state in sorted(states, key=lambda state: state.stake, reverse=True):
                chosen = state.candidates[: self._round]
                self._queue.extend(Request(state.workload, scheme) for scheme in chosen)
            self._round *= 2
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]


class RandomStrategy:
    """Draws from all candidates of all workloads; the same ``seed`` draws the same ones."""

    gain_left: float | None = None

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        every = [Request(state.workload, s) for state in states for s in state.candidates]
        return self._random.sample(every, min(count, len(every)))
