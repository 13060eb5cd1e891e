"""Search with a learned cost model: measure what promises the network most, learn, repeat.

A candidate's worth is the expected improvement (Jones et al., "Efficient Global Optimization",
1998) of its predicted seconds over its workload's best, times how often a network runs the
workload, as a share of that network's time: so all workloads compete for the budget, it goes where
it gains most, and of several networks a small one gets its due.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.search.cost_model import LearnedCostModel
from neocpu.search.measuring.measure import Request
from neocpu.search.strategies import WorkloadState

# The error of the logarithm of predicted seconds: what it is taken for before any prediction was
# put to the test, as if from so many of them, and its bounds.
FIRST_ERROR, FIRST_WEIGHT = 0.20, 10
LEAST_ERROR, MOST_ERROR = 0.05, 0.5
# Predictions tested last, of which the error is estimated.
TESTED = 100
# Another candidate of a workload in a batch is worth less: the first may make it pointless.
REPEATED = 0.5
# Worth of a faster scheme between other layouts than the best one's, where it is within SLACK of
# the workload's best: it may save a layout transform.
OTHER_LAYOUTS, SLACK = 0.1, 1.1
# The search ends when what is left is expected to gain no network more than this share of its time.
# Replayed on full grids of ResNet-50, Inception-v3 and VGG-16 on two CPUs that is after 20 to 70 %
# of the measurements, at most 0.03 % above the grid's sum; twice this leaves up to 2 %. For the
# paper's fifteen networks together it is after 39 %, at most 0.05 % above each one's grid; a limit
# on the average network's gain would leave one of them 1.3 %.
NEGLIGIBLE = 0.005
# Of so many proposals one is the only candidate of a workload that leaves no choice: a plan needs
# its seconds, however early the search is stopped, but not before those of the convolutions.
SINGLE_EVERY = 16


@dataclass(frozen=True, slots=True)
class _Candidate:
    request: Request
    predicted: float
    gain: float


class XgbStrategy:
    """Ranks all candidates of all workloads by expected improvement; trains between batches."""

    def __init__(self, model: LearnedCostModel) -> None:
        self._model = model
        self._predicted: dict[Request, float] = {}
        self._errors: deque[float] = deque(maxlen=TESTED)
        self._proposed = 0
        self.gain_left: float | None = None

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        """Return the ``count`` candidates with the largest expected gains, none of them if all are
        small.

        It adds a few of workloads with a single scheme, because a plan cannot mix estimates and
        measurements.
        """
        choices = [state for state in states if state.has_choice]
        promising = self._promising(choices)
        if not promising:
            return _unmeasured(states)[:count]
        due = (self._proposed + count) // SINGLE_EVERY - self._proposed // SINGLE_EVERY
        self._proposed += count
        singles = _unmeasured([state for state in states if not state.has_choice])[:due]
        chosen = heapq.nlargest(count - len(singles), promising, key=lambda found: found.gain)
        self._predicted.update((c.request, c.predicted) for c in chosen)
        return [*(candidate.request for candidate in chosen), *singles]

    def _promising(self, states: Sequence[WorkloadState]) -> list[_Candidate]:
        """Return all candidates with their gains in shares of time; none if all are small."""
        if not states:
            self.gain_left = 0.0
            return []
        self._model.learn(states)
        self._test_predictions(states)
        predictions = self._model.predict(states)
        ranked = [self._rank(s, p.tolist()) for s, p in zip(states, predictions, strict=True)]
        shares = _shares(states)
        expected = np.array([sum(c.gain for c in found) for found in ranked]) @ shares
        best = np.array([found[0].gain if found else 0.0 for found in ranked]) @ shares
        self.gain_left = float(best.max(initial=0.0))
        if np.all(expected <= NEGLIGIBLE):
            return []
        return [
            _Candidate(candidate.request, candidate.predicted, candidate.gain * share)
            for found, share in zip(ranked, shares.sum(axis=1).tolist(), strict=True)
            for candidate in found
        ]

    def _test_predictions(self, states: Sequence[WorkloadState]) -> None:
        """Note how far off the predictions were that have been measured since."""
        records = {state.workload: state.records for state in states}
        for request, predicted in list(self._predicted.items()):
            record = records[request.workload].get(request.scheme)
            if record is not None:
                del self._predicted[request]
                if record.result.error is None:
                    self._errors.append(math.log(record.result.best) - predicted)

    @property
    def _error(self) -> float:
        """Standard deviation of the logarithm of predicted seconds."""
        squares = FIRST_WEIGHT * FIRST_ERROR**2 + sum(error**2 for error in self._errors)
        spread = math.sqrt(squares / (FIRST_WEIGHT + len(self._errors)))
        return min(max(spread, LEAST_ERROR), MOST_ERROR)

    def _rank(self, state: WorkloadState, predictions: Sequence[float]) -> list[_Candidate]:
        """Return candidates by falling gains in seconds, over the best prediction if unmeasured."""
        if not predictions:
            return []
        error = self._error
        best = math.log(state.best) if state.best < math.inf else min(predictions)
        bests = _best_of_layouts(state)
        found = []
        for scheme, predicted in zip(state.candidates, predictions, strict=True):
            gain = expected_improvement(predicted, error, best)
            between = (scheme.in_layout, scheme.out_layout)
            limit = min(bests.get(between, math.inf), best + math.log(SLACK))
            gain += OTHER_LAYOUTS * expected_improvement(predicted, error, limit)
            found.append((gain, predicted, scheme))
        found.sort(key=lambda each: each[0], reverse=True)
        return [
            _Candidate(Request(state.workload, scheme), predicted, gain * REPEATED**place)
            for place, (gain, predicted, scheme) in enumerate(found)
        ]


def expected_improvement(predicted: float, error: float, best: float) -> float:
    """Return the seconds by which a candidate is expected to beat the best. All are logarithms of
    seconds, `error` their standard deviation.
    """
    z = (best - predicted) / error
    mean = math.exp(predicted + error**2 / 2)
    return max(0.0, math.exp(best) * _normal_cdf(z) - mean * _normal_cdf(z - error))


def _normal_cdf(z: float) -> float:
    return (1.0 + math.erf(z / math.sqrt(2.0))) / 2.0


def _shares(states: Sequence[WorkloadState]) -> NDArray[Any]:
    """Return what a second of each workload is of each network's time: ``(states, networks)``."""
    counts = np.array([state.counts for state in states], np.float64).reshape(len(states), -1)
    totals = np.array([state.seconds for state in states]) @ counts
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)


def _best_of_layouts(state: WorkloadState) -> dict[tuple[DataLayout, DataLayout], float]:
    bests: dict[tuple[DataLayout, DataLayout], float] = {}
    for scheme, record in state.records.items():
        if record.result.error is None:
            between = (scheme.in_layout, scheme.out_layout)
            bests[between] = min(bests.get(between, math.inf), math.log(record.result.best))
    return bests


def _unmeasured(states: Sequence[WorkloadState]) -> list[Request]:
    """Return the best estimate of each workload without a record, by what they may cost."""
    unmeasured = [state for state in states if not state.records]
    unmeasured.sort(key=lambda state: state.stake, reverse=True)
    return [Request(state.workload, state.candidates[0]) for state in unmeasured]
