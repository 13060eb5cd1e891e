"""The tuning of a network over time as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from neocpu.bench.results.chart import COLORS, STYLE, draw_legend, save
from neocpu.bench.tuning.strategy_race import RaceReport

_MOST_EXCESS: Final = 20.0
"""Per cent; how bad the first seconds are matters little."""


def draw_race(path: Path, race: RaceReport, note: str) -> None:
    """Draw how near each tuning run of a network was to the grid's result, over time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    kinds = tuple(dict.fromkeys((run.strategy, run.warm) for run in race.runs))
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for run in race.runs:
            number = kinds.index((run.strategy, run.warm))
            points = [point for point in run.curve if point.seconds > 0]
            axes.step(
                [point.seconds for point in points],
                [100 * (point.cost / race.best - 1) for point in points],
                where="post",
                color=COLORS[number],
                linewidth=1.2,
                alpha=0.8,
                label=f"{run.strategy}{', knowing other networks' if run.warm else ''}",
            )
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter("")
        axes.set_ylim(top=_MOST_EXCESS)
        axes.set_xlabel("seconds of tuning")
        axes.set_ylabel("convolutions slower than with the grid's choice, %")
        axes.grid(visible=True, linewidth=0.4, color="0.85")
        draw_legend(figure, axes, len(kinds))
        save(figure, path, note)
