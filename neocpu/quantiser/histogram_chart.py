"""A picture of the distribution of each tensor, and of the range that was chosen for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.foundation.errors import MissingPackageError, UsageError
from neocpu.foundation.files import replacing
from neocpu.quantiser.histogram import Distribution
from neocpu.quantiser.quantisation_report import QuantisationReport, TensorReport

FORMATS: Final = ("pdf", "png", "svg")
_COLUMNS: Final = 4
_BARS: Final = 128


def check_drawing(path: Path) -> tuple[Any, str]:
    """Return matplotlib's figure class, and the format of a file by its suffix. Raises UsageError
    if Matplotlib is missing, or the name has another suffix.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"{path}: histograms are drawn as .{', .'.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingPackageError(
            "histograms are drawn with matplotlib: pip install 'neocpu[quantize]'"
        ) from None
    return Figure, kind


def draw(report: QuantisationReport, path: Path) -> None:
    """Write a chart with a panel for each tensor; its range is shaded, counts are logarithmic."""
    figure_class, kind = check_drawing(path)
    rows = max(1, math.ceil(len(report.tensors) / _COLUMNS))
    figure = figure_class(figsize=(3.2 * _COLUMNS, 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for panel, tensor in zip(panels, report.tensors, strict=False):
        _panel(panel, tensor, report.distributions[tensor.name])
    for panel in panels[len(report.tensors) :]:
        panel.set_axis_off()
    with replacing(path, option="--histograms") as stream:
        figure.savefig(stream, format=kind)


def _panel(panel: Any, tensor: TensorReport, seen: Distribution) -> None:
    counts = seen.counts.reshape(_BARS, -1).sum(axis=1)
    edges = np.linspace(-seen.limit, seen.limit, _BARS + 1)
    panel.stairs(np.maximum(counts, 0.5), edges, fill=True, color="#4878a8")
    grid = tensor.grid
    low, high = ((end - grid.zero) * grid.scale for end in (0, grid.levels))
    panel.axvspan(max(low, -seen.limit), min(high, seen.limit), color="#d8a030", alpha=0.25)
    some = edges[1:][counts > 0], edges[:-1][counts > 0]
    if len(some[0]):
        panel.set_xlim(min(some[1].min(), low), max(some[0].max(), high))
    panel.set_yscale("log")
    panel.set_yticks([])
    panel.tick_params(labelsize=6)
    panel.set_title(tensor.name[-36:], fontsize=6)
