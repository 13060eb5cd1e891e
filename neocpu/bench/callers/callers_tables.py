"""What many callers of one module found, as a table and as a document."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from neocpu.bench.callers.many_callers import DIFFERENT_INPUTS, CallersReport
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.table import Table, interval

METHOD: Final = (
    "Threads of one process call one module in slices of a few seconds, in turn one of them and "
    "all of them; those that do not call wait. They use "
    f"{DIFFERENT_INPUTS} different inputs, and every "
    "output is compared, byte for byte, with that of a call made before any of them began. After "
    "each slice the process's resident memory and threads are read, and each caller compares its "
    "CPU affinity with the one it had. Memory is that of the whole process, the benchmark's own "
    "libraries included. The first tenth of the time counts for the outputs alone."
)


def callers_table(reports: Sequence[CallersReport]) -> Table:
    """Return a row per artifact."""
    header = (
        *("model", "threads", "callers", "calls", "other outputs", "one caller calls/s"),
        *("all calls/s", "all / one (95 %)", "memory MB", "process threads", "affinity changed"),
    )
    notes = [f"{one.name}: calls failed: {error}" for one in reports for error in one.errors]
    return Table("Many callers of one module", header, tuple(map(_row, reports)), tuple(notes))


def render(title: str, reports: Sequence[CallersReport], run: Run) -> str:
    """Return the document."""
    table = callers_table(reports).markdown().rstrip()
    return page(title, run, METHOD, ["## Results", table])


def _row(report: CallersReport) -> tuple[str, ...]:
    memory, threads = report.memory, report.process_threads
    return (
        report.name,
        str(report.threads),
        str(report.callers),
        str(report.calls),
        str(report.different),
        f"{1 / statistics.median(report.alone):.1f}",
        f"{1 / statistics.median(report.together):.1f}",
        interval(report.ratio),
        f"{memory.least / 1e6:.1f} to {memory.most / 1e6:.1f}",
        str(threads.most) if not threads.spread else f"{threads.least} to {threads.most}",
        str(report.moved),
    )
