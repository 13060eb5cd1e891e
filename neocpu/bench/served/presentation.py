"""Served models compared with direct calls, as a table and charts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from neocpu.bench.results.presentation import Presentation
from neocpu.bench.results.sample_statistics import Rounds, percentile
from neocpu.bench.results.table import Table, interval, ms
from neocpu.bench.served.served_model import BATCHES, ROUNDS, ServedReport, ServedResult
from neocpu.foundation.units import plural
from neocpu.plan.result_pages.parts import Chart, Line, chosen

METHOD: Final = (
    "`neocpu serve` runs in one process and listens on loopback; clients in another send requests "
    "of the Open Inference Protocol v2 with binary tensors over connections they keep, each the "
    "next one when it has the answer to the last; a third process makes direct calls of the same "
    "artifact with the same input, one after another without a pause. In {rounds} rounds they "
    "take turns, and a process is stopped (SIGSTOP) unless it is its turn. All of them share the "
    "machine's CPUs, so what clients and server take, calls lose. Requests count while all "
    "clients are at it: from when each has had an answer to when they stop asking. Every answer "
    "is compared byte for byte with the outputs of direct calls; where several plans may compute "
    "it, in different precision maybe, norm-wise to 0.05. Where the server computes requests "
    "together, each has one row, direct calls are of whole batches, and count as many: they are "
    "made by the plan and on as many streams as give the most rows a second, which is tried "
    "first, and the server has as many instances as any mode within 5 % of that has streams. A "
    "batch then takes what `--max-batch` rows for each instance take in such calls. Overhead is "
    "the median of a request's time less that of a direct call's of as much, in the same round, "
    "with one client."
)
LEAST_SHARE: Final = 0.95  # of direct calls' throughput, for a server that computes jointly


def present(reports: Sequence[ServedReport]) -> Presentation:
    return Presentation(
        method=METHOD.format(rounds=ROUNDS),
        tables=(served_table(reports),),
        parts=(
            *chosen([_speed(one) for one in reports], "model"),
            *chosen([_latency(one) for one in reports], "model"),
        ),
    )


def served_table(reports: Sequence[ServedReport]) -> Table:
    together = any(one.bound is not None for report in reports for one in report.results)
    direct, short, last = "direct calls", "direct", ("direct p50 ms", "overhead ms")
    if together:
        direct, last = "best mode", (f"delay + {BATCHES} batches ms", "p99 / that")
        short = direct
    header = (
        *("model", "clients", "requests/s", f"{direct}/s", f"it / {short} (95 %)"),
        *("p50 ms", "p99 ms", *last, "clients' CPU ms", "wrong answers"),
    )
    rows = tuple(_row(report, result) for report in reports for result in report.results)
    notes = [
        f"{report.name}: {plural(report.mode.threads, 'thread')}, "
        f"{report.request_bytes / 1e3:.1f} kB per request"
        + (
            f", served by {plural(report.instances, 'instance')}, best mode of direct calls: "
            f"{report.mode}."
            if together
            else "."
        )
        for report in reports
    ]
    if together:
        notes.append(
            f"The aims are at least {LEAST_SHARE:.2f} of the best mode, and a p99 of at most the "
            f"delay and {BATCHES} times what a batch takes: 1.00 of it."
        )
    return Table("Served", header, rows, tuple(notes))


def _row(report: ServedReport, result: ServedResult) -> tuple[str, ...]:
    p99, bound = percentile(result.latencies, 99), result.bound
    last = (
        ms(percentile(result.direct, 50)),
        "" if result.overhead is None else ms(result.overhead),
    )
    return (
        report.name,
        str(result.clients),
        f"{1 / statistics.median(result.per_answer):.1f}",
        f"{1 / statistics.median(result.per_call):.1f}",
        interval(result.share),
        ms(percentile(result.latencies, 50)),
        ms(p99),
        *(last if bound is None else (ms(bound), f"{p99 / bound:.2f}")),
        ms(result.client_cpu),
        str(result.wrong),
    )


def _speed(report: ServedReport) -> Chart:
    rounds = [[1 / seconds for seconds in one.per_answer] for one in report.results]
    middle = tuple(map(statistics.median, rounds))
    low, high = tuple(map(min, rounds)), tuple(map(max, rounds))
    direct = tuple(1 / statistics.median(one.per_call) for one in report.results)
    return Chart(
        title=f"{report.name}, requests a second",
        across="clients",
        up="requests a second",
        unit="number",
        along=tuple(float(one.clients) for one in report.results),
        lines=(Line("served", middle, low=low, high=high), Line("direct calls", direct, "limit")),
    )


def _latency(report: ServedReport) -> Chart:
    found = report.results

    def us(each: Iterable[Rounds], rank: int) -> tuple[float, ...]:
        return tuple(percentile(rounds, rank) * 1e6 for rounds in each)

    half, most = (us([one.latencies for one in found], rank) for rank in (50, 99))
    direct = us([one.direct for one in found], 50)
    bounds = tuple(one.bound and one.bound * 1e6 for one in found)
    return Chart(
        title=f"{report.name}, what a request takes",
        across="clients",
        up="latency",
        unit="us",
        along=tuple(float(one.clients) for one in found),
        lines=(
            Line("a request, median", half),
            Line("a request, 99 % are below", most),
            Line("a direct call, median", direct, "limit"),
            *([Line("the aim of the 99 %", bounds, "limit")] if any(bounds) else []),
        ),
    )
