"""A network's time after so many seconds of tuning, by which strategies are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.search.measuring.measure import Request
from neocpu.search.tuner import TuneProgress
from neocpu.tuning_db.record import Workload


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A network's convolution seconds after ``seconds`` of tuning and ``trials`` measurements."""

    seconds: float
    trials: int
    cost: float


def tuning_curve(
    counts: Mapping[Workload, int],
    untuned: Mapping[Workload, Scheme],
    progress: Iterable[TuneProgress],
    reference: Mapping[Request, float],
) -> tuple[CurvePoint, ...]:
    """Return the cost of a compilation's choices at each moment of a run.

    A run's own measurements are no fair judge of it: the best of many noisy values is too good. So
    every choice counts with seconds of other measurements.

    Parameters
    ----------
    counts : mapping of Workload to int
        The number of times that the network runs each workload.
    untuned : mapping of Workload to Scheme
        A compilation's choices before anything is measured.
    progress : iterable of TuneProgress
        The run's events, in order.
    reference : mapping of Request to float
        Seconds of all that was ever chosen.
    """
    chosen = dict(untuned)
    costs = {w: count * reference[Request(w, chosen[w])] for w, count in counts.items()}
    curve = [CurvePoint(0.0, 0, sum(costs.values()))]
    for event in progress:
        workload, scheme = event.workload, event.chosen
        if scheme is not None and scheme != chosen[workload]:
            chosen[workload] = scheme
            costs[workload] = counts[workload] * reference[Request(workload, scheme)]
        curve.append(CurvePoint(event.seconds, event.trials, sum(costs.values())))
    return tuple(curve)
