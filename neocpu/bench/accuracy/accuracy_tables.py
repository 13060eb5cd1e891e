"""Networks' errors as a table, and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neocpu.bench.accuracy.network_errors import PEER, AccuracyReport
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.table import Table
from neocpu.schedules.vocabulary.accuracy import LEVELS

METHOD: Final = (
    "An error is norm-wise: the 2-norm of the difference from the output that numpy computes in "
    "float64, over the norm of that; the largest of a network's outputs, on one random input. "
    "Built-in networks have random weights, normally distributed. Every network is compiled at "
    "each level of `compile --accuracy`. Detections are compared row by row, each with the one it "
    "matches."
)


def accuracy_table(
    reports: Sequence[AccuracyReport], failures: Sequence[ModelFailure] = ()
) -> Table:
    """Return a row per network; errors above their level's bound are bold."""
    levels = tuple(LEVELS)
    rows = tuple(
        (
            report.name,
            *(f"{report.errors[level]:.1e}" for level in levels),
            "-" if report.peer is None else f"{report.peer:.1e}",
        )
        for report in reports
    )
    bold = frozenset(
        (row, 1 + levels.index(level))
        for row, report in enumerate(reports)
        for level in report.missed
    )
    notes = [f"{failure.name} failed: {failure.reason}" for failure in failures]
    if reports:
        notes += [_worst(level, reports) for level in levels]
    return Table(
        "Norm-wise error against float64", ("network", *levels, PEER), rows, tuple(notes), bold
    )


def _worst(level: str, reports: Sequence[AccuracyReport]) -> str:
    worst = max(reports, key=lambda report: report.errors[level])
    bound = LEVELS[level].bound
    return f"{level}: at most {worst.errors[level]:.1e} ({worst.name}); the bound is {bound:g}."


def render(
    title: str, reports: Sequence[AccuracyReport], failures: Sequence[ModelFailure], run: Run
) -> str:
    """Return the document."""
    table = accuracy_table(reports, failures).markdown().rstrip()
    return page(title, run, METHOD, ["## Results", table])
