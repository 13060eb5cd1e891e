"""The runs of each search strategy as one curve: the middle one, and the spread around it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neocpu.bench.tuning.strategy_race import RaceReport, RaceRun, cost_at
from neocpu.plan.result_pages.parts import Chart, Line

MOST_EXCESS: Final = 0.2
"""Where charts end: how bad the first seconds are matters little."""
MOMENTS: Final = 120
"""Places of a curve, besides the ends of runs: evenly apart on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class StrategyCurve:
    """What a strategy found after so many seconds, over all of its seeds.

    Attributes
    ----------
    label : str
    seconds : tuple of float
        Ascending; every run's end is among them, for what it found last.
    middle, low, high : tuple of float or None
        By how much the network's convolutions take longer than with the grid's choice, relative: of
        the median run, the best and the worst; None once all have ended.
    """

    label: str
    seconds: tuple[float, ...]
    middle: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


def strategy_curves(report: RaceReport) -> tuple[StrategyCurve, ...]:
    """Return a curve for each strategy, and one more for each that knew other networks."""
    kinds = dict.fromkeys((run.strategy, run.warm) for run in report.runs)
    points = [point.seconds for run in report.runs for point in run.curve if point.seconds > 0]
    ends = [run.curve[-1].seconds for run in report.runs]
    even = np.geomspace(min(points), max(points), MOMENTS).tolist() if points else []
    moments = sorted({*even, *ends} - {0.0})
    return tuple(
        _curve(
            f"{strategy}{', knowing other networks' if warm else ''}",
            [run for run in report.runs if (run.strategy, run.warm) == (strategy, warm)],
            moments,
            report.best,
        )
        for strategy, warm in kinds
    )


def _curve(
    label: str, runs: Sequence[RaceRun], moments: Sequence[float], best: float
) -> StrategyCurve:
    end = max(run.curve[-1].seconds for run in runs)
    rows = [
        [cost_at(run.curve, moment) / best - 1 for run in runs]
        for moment in moments
        if moment <= end
    ]
    ended: tuple[float | None, ...] = (None,) * (len(moments) - len(rows))
    picks: tuple[Callable[[list[float]], float], ...] = (statistics.median, min, max)
    middle, low, high = ((*map(pick, rows), *ended) for pick in picks)
    return StrategyCurve(label, tuple(moments), middle, low, high)


def race_chart(report: RaceReport) -> Chart:
    """Return the curves for a page."""
    curves = strategy_curves(report)
    return Chart(
        title=f"{report.model}: slower than with the grid's choice, by strategy",
        across="seconds of tuning",
        up="slower",
        unit="share",
        along=curves[0].seconds if curves else (),
        lines=tuple(Line(one.label, one.middle, "step", one.low, one.high) for one in curves),
        log_x=True,
        most=MOST_EXCESS,
    )
