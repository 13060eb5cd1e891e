"""The tuning of a network over time as a chart."""

from __future__ import annotations

from pathlib import Path

from neocpu.bench.results.chart import COLORS, STYLE, draw_legend, save
from neocpu.bench.tuning.strategy_curves import MOST_EXCESS, strategy_curves
from neocpu.bench.tuning.strategy_race import RaceReport


def draw_race(path: Path, race: RaceReport, note: str) -> None:
    """Draw how near each strategy was to the grid's result, over time.

    A line is the median run; what is shaded reaches from the best to the worst.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    curves = strategy_curves(race)
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for number, one in enumerate(curves):
            color = COLORS[number % len(COLORS)]
            middle, low, high = (
                [100 * value for value in values if value is not None]
                for values in (one.middle, one.low, one.high)
            )
            seconds = one.seconds[: len(middle)]
            axes.fill_between(seconds, low, high, step="post", color=color, alpha=0.15, linewidth=0)
            axes.step(seconds, middle, where="post", color=color, linewidth=1.8, label=one.label)
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter("")
        axes.set_ylim(top=100 * MOST_EXCESS)
        axes.set_xlabel("seconds of tuning (lines: the median run; shaded: best to worst)")
        axes.set_ylabel("convolutions slower than with the grid's choice, %")
        axes.grid(visible=True, linewidth=0.4, color="0.85")
        draw_legend(figure, axes, len(curves))
        save(figure, path, note)
