"""Times to the first output as a table."""

from __future__ import annotations

from neocpu.bench.race.coldstart import ColdStartReport
from neocpu.bench.results.table import Table, interval, ms


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
            f"{result.idle_seconds * 1e3:.2f}",
        )
        for result in report.results
    )
    failed = (f"{failure.label} failed: {failure.reason}" for failure in report.failures)
    notes = ("Idle: CPU time of all threads in the second after a call.", *failed)
    header = (
        "contender",
        "Python, numpy ms",
        "import ms",
        "load ms",
        "first call ms",
        "first output ms",
        f"it / {baseline} (95 %)",
        "second call ms",
        "peak MB",
        "idle ms",
    )
    return Table(title, header, rows, notes)
