"""A race as tables and charts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.race import suite_tables
from neocpu.bench.race.latency_report import LatencyResult, ScalingReport
from neocpu.bench.race.report import ModelReport, SuiteReport
from neocpu.bench.results.chart import Figure, GroupedBars, caption
from neocpu.bench.results.presentation import Presentation, Run
from neocpu.bench.results.sample_statistics import ENOUGH_ROUNDS, Ratio
from neocpu.bench.results.table import Table
from neocpu.plan.result_pages.parts import Bars, Chart, Line, Part, chosen

METHOD: Final = (
    "Every engine runs in a process of its own, in float32 if the command names nothing else, on "
    "the same number of threads and the same inputs. A process is stopped (SIGSTOP) unless it is "
    "its turn, so that no engine's threads spin into another's time. After a warm-up the engines "
    "run in {rounds} interleaved rounds, in an order drawn anew for each. Latencies are medians "
    "over all runs; the interval of a ratio is a bootstrap over whole rounds."
)
COMPARISON: Final = (
    "All outputs are compared with those of {reference}, or of neocpu in float32 where that runs "
    "beside them, and one that differs is marked wrong. A ratio above 1 means that neocpu is "
    "faster than the fastest peer whose outputs are right."
)


def present(report: SuiteReport, run: Run, *, detailed: bool) -> Presentation:
    results = tuple(suite_tables.tables(report, run.peers))
    details = tuple(suite_tables.details(report.models))
    return Presentation(
        method=method(run),
        tables=_printed(report, results, details if detailed else ()),
        results=results,
        details=details,
        parts=_parts(report.models),
        figures=_figures(report.models, run),
        undrawn="no peer has a result",
    )


def _printed(
    report: SuiteReport, results: tuple[Table, ...], details: tuple[Table, ...]
) -> tuple[Table, ...]:
    names = {model.name for model in report.models} | {one.name for one in report.failures}
    if report.models and len(names) == 1:
        return tuple(suite_tables.model_tables(report.models[0]))
    return (*results, *details)


def _parts(models: Sequence[ModelReport]) -> tuple[Part, ...]:
    ratios = tuple((one.name, ratio.value) for one in models if (ratio := one.ratio) is not None)
    bars = Bars("Latency of the best peer over neocpu's, by model", "times", ratios)
    rounds = chosen([_rounds(one) for one in models], "model")
    return (*([bars] if ratios else []), *rounds, *chosen(_scalings(models), "model"))


def _figures(models: Sequence[ModelReport], run: Run) -> tuple[Figure, ...]:
    """Return speeds relative to the best peers', and scaling, whose file is its own beside them."""
    found = []
    compared = [model for model in models if model.best_peer is not None]
    if compared:
        found.append(
            Figure(
                words="Speed of every engine relative to the best peer",
                note=caption(run.machine, run.threads[-1:]),
                panels=_speeds(compared),
            )
        )
    if scalings := _scalings(models):
        found.append(
            Figure(
                words="Throughput over the number of threads",
                note=caption(run.machine, run.threads),
                panels=tuple(scalings),
                suffix="-scaling" if found else "",
            )
        )
    return tuple(found)


def _speeds(models: Sequence[ModelReport]) -> GroupedBars:
    labels = dict.fromkeys(result.label for model in models for result in model.latency.results)
    return GroupedBars(
        across="speed relative to the best peer (more is better; lines: 95 % interval)",
        names=tuple(model.name for model in models),
        series={label: tuple(_speed(model, label) for model in models) for label in labels},
        written=OWN,
    )


def _speed(model: ModelReport, label: str) -> Ratio | None:
    result, best = model.latency.find(label), model.best_peer
    if result is None or best is None or not result.agrees:
        return None
    return model.latency.ratio(best, result)


def _scalings(models: Sequence[ModelReport]) -> list[Chart]:
    return [_scaling(one.name, one.scaling) for one in models if one.scaling is not None]


def method(run: Run) -> str:
    words = METHOD.format(rounds=run.rounds)
    if run.peers:
        words += " " + COMPARISON.format(reference=run.peers[0])
    return words + _doubt(run.rounds)


def _doubt(rounds: int) -> str:
    """Return a warning about intervals from few rounds; empty if they are enough."""
    if rounds >= ENOUGH_ROUNDS:
        return ""
    return f" With fewer than {ENOUGH_ROUNDS} rounds the intervals are narrower than the truth."


def _rounds(model: ModelReport) -> Chart:
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
