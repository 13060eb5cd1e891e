"""A race of search strategies as tables and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from neocpu.bench.results import document
from neocpu.bench.results.table import Table
from neocpu.bench.tuning.strategy_race import MOMENTS, ROUNDS, WARM_MOMENTS, RaceReport, RaceRun

METHOD: Final = (
    "Each strategy tunes the network from an empty database: the grid measures every "
    f"candidate, the others have {MOMENTS[-1]:g} s or stop by themselves, once per seed. "
    "Seconds count from the start of the search, the measuring processes' own start included. "
    "Afterwards every scheme that was the best of its convolution at some moment is timed "
    f"{ROUNDS} times more, those of a convolution in turns, for what a run measured itself is "
    "no fair judge of it. Figures say by how much the network's convolutions, each as often "
    "as the network runs it, take longer with what was chosen at a moment than with what the "
    "grid chose in the end. Below zero is noise, or the grid's bad luck."
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
