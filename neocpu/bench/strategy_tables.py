"""A race of search strategies as tables and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from neocpu.bench import document
from neocpu.bench.strategy_race import MOMENTS, ROUNDS, WARM_MOMENTS, RaceReport, RaceRun
from neocpu.bench.tables import Table

METHOD: Final = (
    "The grid first measures every candidate. Then each strategy tunes the network from an empty "
    f"database for {MOMENTS[-1]:g} s, or until it stops by itself, once per seed. Seconds count "
    "from the start of the search, the measuring processes' own start included. Last, the schemes "
    f"that each run had chosen at the moments below are timed {ROUNDS} times more, all schemes of "
    "a convolution in turns: the tables say by how much the network's convolutions, each as often "
    "as the network runs it, take longer with them than with the grid's winners. Below zero is "
    "noise, or luck of the grid's. The chart values choices by the grid's own measurements, of "
    "which the best is a little too good, so its curves end above zero."
)


def tables(report: RaceReport) -> list[Table]:
    """Return the runs from nothing, and those that knew other networks if there are any."""
    grid, *others = report.runs
    exhaustive = (
        f"The grid measures all {grid.trials} candidates of {report.workloads} convolutions in "
        f"{grid.seconds:.0f} s; with its winners they take {report.best * 1e3:.2f} ms."
    )
    cold = [run for run in others if not run.warm]
    warm = [run for run in others if run.warm]
    found = [_table(f"{report.model} from an empty database", cold, MOMENTS, (exhaustive,))]
    if warm:
        title = f"{report.model} from other networks' records"
        found.append(_table(title, warm, WARM_MOMENTS, ()))
    return found


def _table(
    title: str, runs: Sequence[RaceRun], moments: Sequence[float], notes: tuple[str, ...]
) -> Table:
    header = ("strategy", "seed", "trials", "seconds", *(f"at {m:g} s" for m in moments))
    rows = tuple(
        (
            run.strategy,
            str(run.seed),
            str(run.trials),
            f"{run.seconds:.1f}",
            *(f"{run.excess[moment]:+.1%}" for moment in moments),
        )
        for run in runs
    )
    return Table(title, header, rows, notes)


def render(
    title: str, reports: Sequence[RaceReport], run: document.Run, charts: Mapping[str, str]
) -> str:
    """Return the document; ``charts`` as in `document.render`."""
    results = ["## Results", *(f"![{words}]({path})" for words, path in charts.items())]
    results += [table.markdown().rstrip() for report in reports for table in tables(report)]
    return document.page(title, run, METHOD, results)
