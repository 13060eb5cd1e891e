"""Benchmark results of one model as tables for people: on a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neocpu.bench.coldstart import ColdStartReport
from neocpu.bench.kernels import KernelReport
from neocpu.bench.latency import LatencyReport, LatencyResult
from neocpu.bench.statistics import Ratio
from neocpu.foundation.plain_text import plain
from neocpu.foundation.units import plural


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table and what is to be said below it.

    Attributes
    ----------
    header : tuple of str
        Column titles; all columns but the first hold numbers and align to the right.
    rows : tuple of tuple of str
    notes : tuple of str
        One sentence each.
    bold : frozenset of pair of int
        Cells to emphasise: row and column.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    bold: frozenset[tuple[int, int]] = frozenset()

    def markdown(self) -> str:
        """Return the table in Markdown, below a heading of the third level."""
        lines = [
            f"### {plain(self.title)}",
            "",
            _markdown_row(self.header),
            _markdown_row(("---", *["---:"] * (len(self.header) - 1))),
        ]
        for number, row in enumerate(self.rows):
            cells = [
                f"**{cell}**" if (number, column) in self.bold else cell
                for column, cell in enumerate(row)
            ]
            lines.append(_markdown_row(cells))
        if self.notes:
            lines += ["", *(f"- {plain(note)}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def latency_table(title: str, report: LatencyReport, baseline: str) -> Table:
    """Return latencies, and how long each of the others takes relative to ``baseline``."""
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


def ablation_table(title: str, report: LatencyReport) -> Table:
    """Return latencies of the levels of optimisation, and the speed-up over the first."""
    first = report.results[0] if report.results else None
    rows = tuple(
        (
            result.label,
            ms(result.p50),
            ms(result.p90),
            "" if first is None or result is first else interval(report.ratio(first, result)),
        )
        for result in report.results
    )
    return Table(title, ("--opt", "median ms", "p90 ms", "speed-up (95 %)"), rows, report.warnings)


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


def cold_start_table(title: str, report: ColdStartReport, baseline: str) -> Table:
    """Return times to the first output, by step and in all, and relative to ``baseline``'s."""
    base = next((result for result in report.results if result.label == baseline), None)
    rows = tuple(
        (
            result.label,
            *(ms(result.step(step)) for step in ("interpreter", "imports", "load", "first_call")),
            ms(result.median),
            "" if base is None or result is base else interval(report.ratio(result, base)),
            ms(result.step("second_call")),
            f"{result.peak_bytes / 1e6:.0f}",
        )
        for result in report.results
    )
    notes = tuple(f"{failure.label} failed: {failure.reason}" for failure in report.failures)
    header = (
        *("contender", "Python, numpy ms", "import ms", "load ms", "first call ms"),
        *("first output ms", f"it / {baseline} (95 %)", "second call ms", "peak MB"),
    )
    return Table(title, header, rows, notes)


def _verdict(report: LatencyReport, base: LatencyResult) -> Sequence[str]:
    """Compare with the fastest of the others that computes the right thing."""
    best = report.best_peer(base.label)
    if best is None or not base.agrees:
        return ()
    if report.inconclusive:
        return report.inconclusive
    ratio = report.ratio(base, best)
    factor = max(ratio.value, 1 / ratio.value)
    word = "faster" if ratio.value < 1 else "slower"
    return (f"{base.label} is {factor:.2f} times {word} than the fastest peer, {best.label}.",)


def interval(ratio: Ratio) -> str:
    """Return a ratio with its confidence interval."""
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def difference(report: LatencyReport, result: LatencyResult) -> str:
    """Return how far outputs are from the reference's, and whether that is too far."""
    if result.label == report.reference:
        return "reference"
    return f"{result.error:.1e}" if result.agrees else f"{result.error:.1e} (wrong)"


def ms(seconds: float) -> str:
    """Return seconds as a number of milliseconds."""
    return f"{seconds * 1e3:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
