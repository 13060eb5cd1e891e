"""Races as charts: bars over models, lines over thread counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.race.report import ModelReport
from neocpu.bench.results.chart import COLORS, MARKERS, STYLE, caption, draw_legend, save
from neocpu.bench.results.machine import MachineInfo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_HEIGHT: Final = 0.15
"""Inches."""


def draw(
    path: Path, models: Sequence[ModelReport], machine: MachineInfo, threads: Sequence[int]
) -> dict[str, Path]:
    """Draw what there is to draw: speeds, and scaling in a file of its own if both are.

    Parameters
    ----------
    threads : sequence of int
        All counts, ascending; speeds were measured at the last one.

    Returns
    -------
    dict of str to Path
        What each chart shows, and its file; empty if no peer has a result.

    Raises
    ------
    UsageError, ArtifactError
        If a file cannot be written.
    """
    drawn = {}
    if any(model.best_peer is not None for model in models):
        drawn["Speed of every engine relative to the best peer"] = path
        draw_speed(path, models, caption(machine, threads[-1:]))
    if any(model.scaling is not None for model in models):
        scaling = path.with_stem(f"{path.stem}-scaling") if drawn else path
        drawn["Throughput over the number of threads"] = scaling
        draw_scaling(scaling, models, caption(machine, threads))
    return drawn


def draw_speed(path: Path, models: Sequence[ModelReport], note: str) -> None:
    """Draw every engine's speed relative to the best peer, as horizontal bars by model.

    Parameters
    ----------
    models : sequence of ModelReport
        Those without a peer's result are left out; at least one must have one.
    note : str
        The caption.
    """
    shown = [model for model in models if model.best_peer is not None]
    assert shown
    labels = tuple(dict.fromkeys(r.label for m in shown for r in m.latency.results))
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        height = 1.3 + len(shown) * (len(labels) + 1) * _BAR_HEIGHT
        figure = Figure(figsize=(7.5, height), layout="constrained")
        axes = figure.add_subplot()
        for number, label in enumerate(labels):
            _draw_bars(axes, shown, label, number, len(labels))
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(shown)), [model.name for model in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("speed relative to the best peer (more is better; lines: 95 % interval)")
        axes.tick_params(axis="y", length=0)
        draw_legend(figure, axes, len(labels))
        save(figure, path, note)


def _draw_bars(
    axes: Axes, models: Sequence[ModelReport], label: str, number: int, count: int
) -> None:
    """Draw one engine's bar on every model where its outputs are right."""
    places, values, below, above = [], [], [], []
    for row, model in enumerate(models):
        result, best = model.latency.find(label), model.best_peer
        assert best is not None
        if result is None or not result.agrees:
            continue
        ratio = model.latency.ratio(best, result)
        places.append(row + (number - (count - 1) / 2) / (count + 1))
        values.append(ratio.value)
        below.append(ratio.value - ratio.low)
        above.append(ratio.high - ratio.value)
    bars = axes.barh(
        places,
        values,
        1 / (count + 1),
        xerr=(below, above),
        color=COLORS[number % len(COLORS)],
        label=label,
        error_kw={"linewidth": 0.8},
    )
    if label == OWN:
        texts = [f"{value:.2f}" for value in values]
        axes.bar_label(bars, texts, label_type="center", color="white", fontsize=7)


def draw_scaling(path: Path, models: Sequence[ModelReport], note: str) -> None:
    """Draw every engine's throughput over the number of threads, a panel for each model.

    Parameters
    ----------
    models : sequence of ModelReport
        Those without a scaling are left out; at least one must have one.
    """
    shown = [(model.name, model.scaling) for model in models if model.scaling is not None]
    assert shown
    labels = tuple(dict.fromkeys(label for _, scaling in shown for label in scaling.labels))
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        size = (max(5.0, 3.3 * columns), 2.6 * rows + 0.8)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (name, scaling) in zip(panels, shown, strict=False):
            for number, label in enumerate(labels):
                points = {
                    threads: 1 / result.median
                    for threads, report in scaling.reports.items()
                    if (result := report.find(label)) is not None and result.agrees
                }
                axes.plot(
                    list(points),
                    list(points.values()),
                    marker=MARKERS[number % len(MARKERS)],
                    color=COLORS[number % len(COLORS)],
                    label=label,
                )
            axes.set_title(name)
            axes.set_xticks(scaling.threads)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("threads")
            axes.set_ylabel("runs per second")
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        draw_legend(figure, figure.axes[0], len(labels))
        save(figure, path, note)
