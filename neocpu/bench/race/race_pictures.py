"""A race for a page: every engine's rounds, with their spread, and how engines scale."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from neocpu.bench.race.latency_report import LatencyResult
from neocpu.bench.race.report import ModelReport
from neocpu.bench.race.scaling import ScalingReport
from neocpu.plan.result_pages.parts import Bars, Chart, Line, Part, chosen


def pictures(models: Sequence[ModelReport]) -> tuple[Part, ...]:
    """Return what is drawn: speeds of all models, the rounds of each, and scaling."""
    ratios = tuple((one.name, ratio.value) for one in models if (ratio := one.ratio) is not None)
    bars = Bars("Latency of the best peer over neocpu's, by model", "times", ratios)
    scalings = [_scaling(one.name, one.scaling) for one in models if one.scaling is not None]
    rounds = [_rounds(one) for one in models]
    return (*([bars] if ratios else []), *chosen(rounds, "model"), *chosen(scalings, "model"))


def _rounds(model: ModelReport) -> Chart:
    """Return the median of each round, with a line from its fastest run to its slowest."""
    results = model.latency.results
    count = max((len(result.rounds) for result in results), default=0)
    return Chart(
        title=f"{model.name}, round by round",
        across="round",
        up="latency",
        unit="us",
        along=tuple(float(number) for number in range(1, count + 1)),
        lines=tuple(_line(result, count) for result in results),
    )


def _line(result: LatencyResult, count: int) -> Line:
    missing = (None,) * (count - len(result.rounds))
    values, low, high = (
        (*(pick(seconds) * 1e6 for seconds in result.rounds), *missing)
        for pick in (statistics.median, min, max)
    )
    label = result.label if result.agrees else f"{result.label} (wrong outputs)"
    return Line(label, values, low=low, high=high)


def _scaling(name: str, found: ScalingReport) -> Chart:
    lines = []
    for label in found.labels:
        each = (report.find(label) for report in found.reports.values())
        speeds = tuple(1 / one.median if one is not None and one.agrees else None for one in each)
        lines.append(Line(label, speeds))
    return Chart(
        title=f"{name} over the number of threads",
        across="threads",
        up="runs a second",
        unit="number",
        along=tuple(map(float, found.threads)),
        lines=tuple(lines),
    )
