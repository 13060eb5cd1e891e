"""Charts in files: panels of curves or of bars, drawn by matplotlib."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neocpu.bench.results.sample_statistics import Ratio
from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.files import replacing
from neocpu.foundation.machine.machine_info import MachineInfo
from neocpu.plan.result_pages.parts import Chart, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INSTALL_HINT: Final = "pip install 'neocpu[bench]'"

# Without a date or version in it, equal results give equal files.
_METADATA: Final[Mapping[str, dict[str, None]]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Okabe and Ito's palette, which people with any colour vision can tell apart.
COLORS: Final = ("#D55E00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
STYLE: Final[dict[str, Any]] = {
    "svg.hashsalt": "neocpu",
    # Text stays text: it can be searched and read aloud.
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_BAR_HEIGHT: Final = 0.15  # inches
_SCALES: Final[Mapping[Unit, tuple[float, str]]] = {
    "us": (1e-3, ", ms"),
    "bytes": (1e-6, ", MB"),
    "share": (100.0, ", %"),
}
"""The factor of a unit's values in a chart, and its name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedBars:
    """Ratios with their intervals: a group of bars for each name, and a bar for each series."""

    across: str  # the title of the axis of ratios, at whose 1 a line stands
    names: tuple[str, ...]
    series: Mapping[str, tuple[Ratio | None, ...]]  # a ratio for each name, by label
    written: str  # the label of the series whose bars say their value


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    words: str  # a description of the figure's content
    note: str  # the caption
    panels: tuple[Chart, ...] | GroupedBars
    columns: int = 3  # the most panels side by side
    suffix: str = ""  # the end of the file's stem, such as ``-scaling``


def check_suffix(path: Path) -> None:
    """Check that a chart's file name has a known suffix. Raises UsageError."""
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


def draw(figure: Figure, path: Path) -> Path:
    """Draw a figure; return its file. Raises UsageError or ArtifactError: it cannot be written."""
    from matplotlib import rc_context

    file = path.with_stem(path.stem + figure.suffix)
    with rc_context(STYLE):
        if isinstance(figure.panels, GroupedBars):
            canvas = _grouped_bars(figure.panels)
        else:
            canvas = _panels(figure.panels, figure.columns)
        _save(canvas, file, figure.note)
    return file


def _panels(charts: Sequence[Chart], most: int) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    columns = min(most, len(charts))
    rows = -(-len(charts) // columns)
    size = (max(5.0, 3.3 * columns), 2.6 * rows + 0.8)
    canvas = Canvas(figsize=size, layout="constrained")
    panels = canvas.subplots(rows, columns, squeeze=False).flatten()
    labels = list(dict.fromkeys(line.label for chart in charts for line in chart.lines))
    for axes, chart in zip(panels, charts, strict=False):
        _draw_chart(axes, chart, labels)
    for axes in panels[len(charts) :]:
        axes.set_axis_off()
    _draw_legend(canvas, 3)
    return canvas


def _draw_chart(axes: Axes, chart: Chart, labels: Sequence[str]) -> None:
    scale, unit = _SCALES.get(chart.unit, (1.0, ""))
    for line in chart.lines:
        number = labels.index(line.label)
        points = zip(chart.along, line.values, strict=True)
        known = [(place, value * scale) for place, value in points if value is not None]
        if not known:
            continue
        look: dict[str, Any] = {"color": "0.6", "linewidth": 0.8}
        if line.look != "limit":
            look = {
                "color": COLORS[number % len(COLORS)],
                "marker": MARKERS[number % len(MARKERS)],
                "linestyle": "none" if line.look == "dots" or len(known) < 2 else "-",
            }
        axes.plot(*zip(*known, strict=True), label=line.label, **look)
    axes.set_title(chart.title)
    if chart.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if chart.log_y:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(chart.along)
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.up + unit)


def _grouped_bars(bars: GroupedBars) -> Canvas:
    from matplotlib.figure import Figure as Canvas

    height = 1.3 + len(bars.names) * (len(bars.series) + 1) * _BAR_HEIGHT
    canvas = Canvas(figsize=(7.5, height), layout="constrained")
    axes = canvas.add_subplot()
    for number, (label, ratios) in enumerate(bars.series.items()):
        _draw_bars(axes, bars, label, ratios, number)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(bars.names)), bars.names)
    axes.set_ylim(len(bars.names) - 0.5, -0.5)
    axes.set_xlabel(bars.across)
    axes.tick_params(axis="y", length=0)
    _draw_legend(canvas, len(bars.series))
    return canvas


def _draw_bars(
    axes: Axes, bars: GroupedBars, label: str, ratios: Sequence[Ratio | None], number: int
) -> None:
    count = len(bars.series)
    known = [(row, ratio) for row, ratio in enumerate(ratios) if ratio is not None]
    drawn = axes.barh(
        [row + (number - (count - 1) / 2) / (count + 1) for row, _ in known],
        [ratio.value for _, ratio in known],
        1 / (count + 1),
        xerr=(
            [ratio.value - ratio.low for _, ratio in known],
            [ratio.high - ratio.value for _, ratio in known],
        ),
        color=COLORS[number % len(COLORS)],
        label=label,
        error_kw={"linewidth": 0.8},
    )
    if label == bars.written:
        texts = [f"{ratio.value:.2f}" for _, ratio in known]
        axes.bar_label(drawn, texts, label_type="center", color="white", fontsize=7)


def _draw_legend(canvas: Canvas, columns: int) -> None:
    once: dict[str, Any] = {}
    for axes in canvas.axes:
        handles, labels = axes.get_legend_handles_labels()
        once.update(zip(labels, handles, strict=True))
    canvas.legend(
        once.values(),
        once.keys(),
        loc="outside upper center",
        ncols=min(columns, len(once)),
        frameon=False,
    )


def _save(canvas: Canvas, path: Path, note: str) -> None:
    canvas.supxlabel(note, fontsize=7, color="0.35")
    kind = path.suffix.lstrip(".").lower()
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=kind, dpi=150, metadata=dict(_METADATA[kind]))
    data = buffer.getvalue()
    with replacing(path, len(data)) as file:
        file.write(data)
