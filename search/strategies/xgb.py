"""Search with a learned cost model: measure what promises the network most, learn, repeat.

A candidate's worth is the expected improvement (Jones et al., "Efficient Global Optimization",
1998) of its predicted seconds over its workload's best, times how often the network runs the
workload: so all workloads compete for the budget, and it goes where it gains most.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from neocpu.schedules.layout import DataLayout
from neocpu.search.cost_model import CostModel
from neocpu.search.measure import Request
from neocpu.search.strategies import WorkloadState

# The error of the logarithm of predicted seconds: what it is taken for before any prediction was
# put to the test, as if from so many of them, and its bounds.
FIRST_ERROR, FIRST_WEIGHT = 0.20, 10
LEAST_ERROR, MOST_ERROR = 0.05, 0.5
# Predictions tested last, of which the error is estimated.
TESTED = 100
# Another candidate of a workload in the same batch is worth less: what the first one shows may
# make it pointless.
REPEATED = 0.5
# Worth of a faster scheme between other layouts than the best one's, where it is within SLACK of
# the workload's best: it may save a layout transform.
OTHER_LAYOUTS, SLACK = 0.1, 1.1
# The search ends when what is left is expected to gain this share of the network's time. Replayed
# on full grids of ResNet-50, Inception-v3 and VGG-16 on two CPUs that is after 20 to 70 % of the
# measurements, at most 0.03 % above the grid's sum, and for six networks together after 27 %, 0.4 %
# above; twice this leaves up to 2 %.
NEGLIGIBLE = 0.005


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate, the log of its predicted seconds, and the seconds it is expected to gain."""

    request: Request
    predicted: float
    gain: float


class XgbStrategy:
    """Ranks all candidates of all workloads by expected improvement; trains between batches."""

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._predicted: dict[Request, float] = {}
        self._errors: deque[float] = deque(maxlen=TESTED)

    def propose(self, states: Sequence[WorkloadState], count: int) -> Sequence[Request]:
        """Return the ``count`` candidates of the largest expected gains; none if all are small.

        Workloads that leave no choice come last: to know their seconds helps the global search
        alone.
        """
        choices = [state for state in states if state.has_choice]
        self._model.learn(choices)
        self._test_predictions(choices)
        unfinished = [state for state in choices if state.candidates]
        predictions = self._model.predict(unfinished)
        every = [
            candidate
            for state, predicted in zip(unfinished, predictions, strict=True)
            for candidate in self._rank(state, predicted.tolist())
        ]
        expected = sum(candidate.gain for candidate in every)
        if expected <= NEGLIGIBLE * sum(state.stake for state in choices):
            return _without_choice(states)[:count]
        picked = heapq.nlargest(count, every, key=lambda candidate: candidate.gain)
        self._predicted.update((c.request, c.predicted) for c in picked)
        return [candidate.request for candidate in picked]

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
        """Return a workload's candidates, the largest expected gain first.

        Where nothing is measured yet, the gain is over the best prediction.
        """
        error = self._error
        best = math.log(state.best) if state.best < math.inf else min(predictions)
        bests = _best_of_layouts(state)
        found = []
        for scheme, predicted in zip(state.candidates, predictions, strict=True):
            gain = expected_improvement(predicted, error, best)
            between = (scheme.in_layout, scheme.out_layout)
            limit = min(bests.get(between, math.inf), best + math.log(SLACK))
            gain += OTHER_LAYOUTS * expected_improvement(predicted, error, limit)
            found.append(_Candidate(Request(state.workload, scheme), predicted, gain * state.count))
        found.sort(key=lambda candidate: candidate.gain, reverse=True)
        return [replace(c, gain=c.gain * REPEATED**i) for i, c in enumerate(found)]


def expected_improvement(predicted: float, error: float, best: float) -> float:
    """Return the seconds by which a candidate is expected to beat the best.

    Parameters
    ----------
    predicted, error : float
        Mean and standard deviation of the logarithm of its seconds.
    best : float
        Logarithm of the best seconds.
    """
    z = (best - predicted) / error
    mean = math.exp(predicted + error**2 / 2)
    return max(0.0, math.exp(best) * _normal_cdf(z) - mean * _normal_cdf(z - error))


def _normal_cdf(z: float) -> float:
    return (1.0 + math.erf(z / math.sqrt(2.0))) / 2.0


def _best_of_layouts(state: WorkloadState) -> dict[tuple[DataLayout, DataLayout], float]:
    """Return the logarithm of the best seconds between each pair of layouts."""
    bests: dict[tuple[DataLayout, DataLayout], float] = {}
    for scheme, record in state.records.items():
        if record.result.error is None:
            between = (scheme.in_layout, scheme.out_layout)
            bests[between] = min(bests.get(between, math.inf), math.log(record.result.best))
    return bests


def _without_choice(states: Sequence[WorkloadState]) -> list[Request]:
    """Return the only candidates of the workloads that have no other, by what they may cost."""
    single = [state for state in states if not state.has_choice and state.candidates]
    single.sort(key=lambda state: state.stake, reverse=True)
    return [Request(state.workload, state.candidates[0]) for state in single]
