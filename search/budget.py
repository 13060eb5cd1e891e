"""Tuning budgets, and batches small enough to keep them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# A trial's first guess: building and timing one candidate on two cores takes about a tenth.
FIRST_GUESS = 0.25
# How fast the guess of the next trial forgets the trials before the last batch.
MEMORY = 0.5
# The first batch at most, where time is limited: nothing is known before all of it is built.
FIRST_TRIALS = 4
# Of the seconds, for what comes after the search: comparing winners again and checking them.
RESERVE = 0.15


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a search, None for none. A trial that was begun is finished."""

    seconds: float | None = None
    trials: int | None = None


class Pace:
    """The size that the next batch may have, from how long others took since this was made."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self._budget = budget
        self._clock = clock
        self._start = clock()
        self._batch_start = self._start
        self._batch_seconds = 0.0
        self._batch_trials = 0
        self._trial_seconds: float | None = None
        self.trials = 0

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @property
    def left(self) -> float:
        """Seconds left of the budget; ``inf`` if they are not limited."""
        seconds = self._budget.seconds
        return math.inf if seconds is None else seconds - self.elapsed

    @property
    def reserve(self) -> float:
        """Seconds of the budget that the search leaves for the winners; 0 if it is not limited."""
        return RESERVE * (self._budget.seconds or 0.0)

    def next_batch(self, wanted: int) -> int:
        """Return how many trials to begin now, of those ``wanted``: 0 if the budget is spent, and
        the first with any time left.
        """
        self._close_batch()
        limit = wanted
        if self._budget.trials is not None:
            limit = min(limit, self._budget.trials - self.trials)
        if limit > 0 and math.isfinite(self.left):
            searching = self.left - self.reserve
            fitting = int(searching / (self._trial_seconds or FIRST_GUESS))
            if self.trials == 0:
                fitting = min(fitting, FIRST_TRIALS)
                if self.left > 0:
                    fitting = max(fitting, 1)
            limit = min(limit, fitting)
        return max(0, limit)

    def begin(self) -> None:
        self._batch_start = self._clock()

    def count(self) -> None:
        self.trials += 1
        self._batch_trials += 1
        self._batch_seconds = self._clock() - self._batch_start

    def _close_batch(self) -> None:
        """Learn from the batch that has ended how long a trial takes, building included."""
        if not self._batch_trials:
            return
        seconds = self._batch_seconds / self._batch_trials
        if self._trial_seconds is not None:
            seconds = MEMORY * self._trial_seconds + (1 - MEMORY) * seconds
        self._trial_seconds = seconds
        self._batch_trials = 0
