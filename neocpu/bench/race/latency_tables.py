"""Latencies of one model as tables."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.bench.race.convolution_kernels import KernelReport
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult
from neocpu.bench.results.table import Table, interval, ms
from neocpu.foundation.units import plural


def latency_table(title: str, report: LatencyReport, baseline: str) -> Table:
    """Return latencies, and those of other contenders relative to ``baseline``."""
    base = report.find(baseline)
    rows = tuple(
        (
            f"{result.label} {result.version}",
            *(ms(seconds) for seconds in (result.p50, result.p90, result.p99)),
            "" if base is None or result is base else interval(report.ratio(result, base)),
            f"{result.peak_rss / 1e6:.0f}" if result.peak_rss else "",
            difference(report, result),
        )
        for result in report.results
    )
    ratio = f"it / {baseline} (95 %)"
    header = ("contender", "median ms", "p90 ms", "p99 ms", ratio, "peak MB", "error")
    verdict = () if base is None else _verdict(report, base)
    return Table(title, header, rows, (*verdict, *report.warnings))


def kernel_table(title: str, report: KernelReport) -> Table:
    """Return every convolution's speed and its share of the peak."""
    rows = tuple(
        (
            str(result.case.workload),
            str(result.case.count),
            f"{result.seconds * 1e6:.1f}",
            f"{result.gflops:.1f}",
            f"{result.share:.1%}",
            result.case.source,
        )
        for result in report.results
    )
    notes = (
        f"FMA peak {report.peak_gflops:.1f} GFLOP/s with {plural(report.threads, 'thread')}; "
        f"mean {report.mean_share:.1%}, worst {report.min_share:.1%} of it.",
    )
    header = ("convolution", "times", "µs", "GFLOP/s", "of peak", "scheme")
    return Table(title, header, rows, notes)


def difference(report: LatencyReport, result: LatencyResult) -> str:
    """Return the distance of outputs from the reference's, and whether it is too large."""
    if result.label == report.reference:
        return "reference"
    return f"{result.error:.1e}" if result.agrees else f"{result.error:.1e} (wrong)"


def _verdict(report: LatencyReport, base: LatencyResult) -> Sequence[str]:
    """Return the comparison with the fastest other contender with right outputs."""
    best = report.best_peer(base.label)
    if best is None or not base.agrees:
        return ()
    if report.inconclusive:
        return report.inconclusive
    ratio = report.ratio(base, best)
    factor = max(ratio.value, 1 / ratio.value)
    word = "faster" if ratio.value < 1 else "slower"
    return (f"{base.label} is {factor:.2f} times {word} than the fastest peer, {best.label}.",)
