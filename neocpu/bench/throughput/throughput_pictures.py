"""Throughput and memory over the number of calls at once, for a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neocpu.bench.throughput.throughput_report import ModeResult, ThroughputReport
from neocpu.plan.result_pages.parts import Chart, Line, Part, Unit, chosen


def pictures(reports: Sequence[ThroughputReport]) -> tuple[Part, ...]:
    """Return what is drawn of models: images a second, then memory; without wrong outputs."""
    return (
        *chosen([_speed(one) for one in reports], "model"),
        *chosen([_memory(one) for one in reports], "model"),
    )


def _speed(report: ThroughputReport) -> Chart:
    return _chart(report, "images a second", "number", lambda one: one.per_second)


def _memory(report: ThroughputReport) -> Chart:
    return _chart(report, "resident memory", "bytes", lambda one: one.held.rss)


def _chart(
    report: ThroughputReport, what: str, unit: Unit, value: Callable[[ModeResult], float]
) -> Chart:
    right = [one for one in report.modes if one.speed.agrees]
    counts = sorted({one.held.streams for one in right})
    lines = []
    for way in dict.fromkeys(one.mode.way for one in right):
        known = {one.held.streams: value(one) for one in right if one.mode.way == way}
        lines.append(Line(way, tuple(known.get(count) for count in counts)))
    title = f"{report.name}, {what}"
    along = tuple(map(float, counts))
    return Chart(
        title=title, across="calls at once", up=what, unit=unit, along=along, lines=tuple(lines)
    )
