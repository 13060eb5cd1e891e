"""Throughput and memory over the number of calls at once, as a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.bench.results.chart import COLORS, MARKERS, STYLE, draw_legend, save
from neocpu.bench.throughput.throughput_report import ModeResult, ThroughputReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_throughput(path: Path, reports: Sequence[ThroughputReport], note: str) -> None:
    """Draw two panels for each model: images a second, and memory, over calls at once.

    Modes whose outputs are wrong are left out.

    Parameters
    ----------
    note : str
        The caption.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ways = tuple(dict.fromkeys(one.mode.way for report in reports for one in report.modes))
    beside = 2 if len(reports) > 1 else 1
    rows = -(-len(reports) // beside)
    with rc_context(STYLE):
        size = (5.4 * beside, 2.3 * rows + 1.0)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, 2 * beside, squeeze=False).flatten()
        for number, report in enumerate(reports):
            speed, memory = panels[2 * number : 2 * number + 2]
            _draw(speed, report, ways, lambda one: one.per_second)
            _draw(memory, report, ways, lambda one: one.held.rss / 1e6)
            speed.set_title(report.name)
            speed.set_ylabel("images per second")
            memory.set_ylabel("resident MB")
        for axes in panels[2 * len(reports) :]:
            axes.set_axis_off()
        draw_legend(figure, figure.axes[0], min(len(ways), 3))
        save(figure, path, note)


def _draw(
    axes: Axes,
    report: ThroughputReport,
    ways: Sequence[str],
    value: Callable[[ModeResult], float],
) -> None:
    right = [one for one in report.modes if one.speed.agrees]
    for number, way in enumerate(ways):
        points = {one.held.streams: value(one) for one in right if one.mode.way == way}
        axes.plot(
            list(points),
            list(points.values()),
            marker=MARKERS[number % len(MARKERS)],
            color=COLORS[number % len(COLORS)],
            linestyle="-" if len(points) > 1 else "none",
            label=way,
        )
    axes.set_xticks(sorted({one.held.streams for one in report.modes}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("calls at once")
