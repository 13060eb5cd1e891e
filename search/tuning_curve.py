"""How good a network's kernels are after so many seconds of tuning: to compare strategies by."""

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
    """Return what a compilation would have got at each moment of a run.

    What a run measured itself is no fair judge of it: the best of many noisy values is too good.
    So every choice counts with seconds that were measured apart.

    Parameters
    ----------
    counts : mapping of Workload to int
        How many times the network runs each workload.
    untuned : mapping of Workload to Scheme
        What a compilation chooses before anything is measured.
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
