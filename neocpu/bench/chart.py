"""Benchmark results as charts: bars over models, lines over thread counts, curves over time."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neocpu.bench.machine import MachineInfo
from neocpu.bench.report import OWN, ModelReport
from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neocpu.bench.strategy_race import RaceReport

INSTALL_HINT: Final = "pip install 'neocpu[bench]'"

# Without a date or version in it, equal results give equal files.
_METADATA: Final[Mapping[str, dict[str, None]]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Okabe and Ito's palette, which people with any colour vision can tell apart.
_COLORS: Final = ("#D55E00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "neocpu",
    # Text stays text: it can be searched and read aloud.
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_BAR_HEIGHT: Final = 0.15
"""Inches."""
_MOST_EXCESS: Final = 20.0
"""Per cent; how bad the first seconds are matters little."""


def check_suffix(path: Path) -> None:
    """Check that a chart's file name says which format it shall have.

    Raises
    ------
    UsageError
        If its suffix is none of the known ones.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in _METADATA:
        known = ", ".join(f".{name}" for name in _METADATA)
        hint = did_you_mean(kind, _METADATA)
        raise UsageError(f"cannot draw {path}: its suffix must be one of {known}{hint}")


def available() -> bool:
    """Return whether matplotlib is installed, without importing it."""
    return importlib.util.find_spec("matplotlib") is not None


def caption(machine: MachineInfo, threads: Sequence[int]) -> str:
    """Return the line below a chart: where and when it was measured."""
    counts = ", ".join(map(str, threads))
    return f"{machine.cpu}, threads: {counts}, float32, {machine.date[:10]}"


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

    with rc_context(_STYLE):
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
        _legend(figure, axes, len(labels))
        _save(figure, path, note)


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
        color=_COLORS[number % len(_COLORS)],
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

    with rc_context(_STYLE):
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
                    marker=_MARKERS[number % len(_MARKERS)],
                    color=_COLORS[number % len(_COLORS)],
                    label=label,
                )
            axes.set_title(name)
            axes.set_xticks(scaling.threads)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("threads")
            axes.set_ylabel("runs per second")
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        _legend(figure, figure.axes[0], len(labels))
        _save(figure, path, note)


def draw_race(path: Path, race: RaceReport, note: str) -> None:
    """Draw how near each tuning run of a network was to the grid's result, over time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    kinds = tuple(dict.fromkeys((run.strategy, run.warm) for run in race.runs))
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for run in race.runs:
            number = kinds.index((run.strategy, run.warm))
            points = [point for point in run.curve if point.seconds > 0]
            axes.step(
                [point.seconds for point in points],
                [100 * (point.cost / race.best - 1) for point in points],
                where="post",
                color=_COLORS[number],
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
        _legend(figure, axes, len(kinds))
        _save(figure, path, note)


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))  # several lines may be of one kind
    figure.legend(
        once.values(), once.keys(), loc="outside upper center", ncols=columns, frameon=False
    )


def _save(figure: Figure, path: Path, note: str) -> None:
    figure.supxlabel(note, fontsize=7, color="0.35")
    kind = path.suffix.lstrip(".").lower()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata=dict(_METADATA[kind]))
    data = buffer.getvalue()
    with replacing(path, len(data)) as file:
        file.write(data)
