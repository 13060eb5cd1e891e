"""A server under load for a page: throughput and latency over the number of clients."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from neocpu.bench.results.sample_statistics import percentile
from neocpu.bench.served.served_model import ServedReport
from neocpu.plan.result_pages.parts import Chart, Line, Part, chosen


def pictures(reports: Sequence[ServedReport]) -> tuple[Part, ...]:
    """Return what is drawn of artifacts: requests a second, then what one takes."""
    return (
        *chosen([_speed(one) for one in reports], "model"),
        *chosen([_latency(one) for one in reports], "model"),
    )


def _speed(report: ServedReport) -> Chart:
    """Return medians of rounds, with a line from the slowest round to the fastest."""
    rounds = [[1 / seconds for seconds in one.per_answer] for one in report.results]
    middle = tuple(map(statistics.median, rounds))
    low, high = tuple(map(min, rounds)), tuple(map(max, rounds))
    direct = tuple(1 / statistics.median(one.per_call) for one in report.results)
    lines = (Line("served", middle, low=low, high=high), Line("direct calls", direct, "limit"))
    title = f"{report.name}, requests a second"
    return Chart(
        title=title,
        across="clients",
        up="requests a second",
        unit="number",
        along=_clients(report),
        lines=lines,
    )


def _latency(report: ServedReport) -> Chart:
    bounds = tuple(one.bound and one.bound * 1e6 for one in report.results)
    lines = (
        *(
            Line(
                f"a request, {word}",
                tuple(percentile(one.latencies, rank) * 1e6 for one in report.results),
            )
            for word, rank in (("median", 50), ("99 % are below", 99))
        ),
        Line(
            "a direct call, median",
            tuple(percentile(one.direct, 50) * 1e6 for one in report.results),
            "limit",
        ),
        *([Line("the aim of the 99 %", bounds, "limit")] if any(bounds) else []),
    )
    title = f"{report.name}, what a request takes"
    return Chart(
        title=title, across="clients", up="latency", unit="us", along=_clients(report), lines=lines
    )


def _clients(report: ServedReport) -> tuple[float, ...]:
    return tuple(float(one.clients) for one in report.results)
