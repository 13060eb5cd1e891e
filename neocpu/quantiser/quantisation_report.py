"""The report on a quantised model: ranges, and errors against the float32 model, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.foundation.errors import MissingPackageError, UsageError
from neocpu.foundation.files import replacing
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import json_number
from neocpu.quantiser.qdq import TensorGrid
from neocpu.quantiser.ranges import Distribution

POOR: Final = 15.0  # decibels of a layer's output, noise at a sixth, below which it is poor


@dataclass(frozen=True, slots=True)
class TensorReport:
    name: str
    grid: TensorGrid
    low: float
    high: float
    method: str

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "scale": self.grid.scale,
            "zero_point": self.grid.zero,
            "bits": self.grid.bits,
            "low": self.low,
            "high": self.high,
            "method": self.method,
        }


@dataclass(frozen=True, slots=True)
class LayerReport:
    name: str
    operator: str
    weights_db: float  # signal to noise in decibels
    output_db: float  # that of its output in the network

    def to_json(self) -> JsonObject:
        """Return the JSON form; null stands for exact values."""
        return {
            "name": self.name,
            "operator": self.operator,
            "weights_db": json_number(self.weights_db),
            "output_db": json_number(self.output_db),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisationReport:
    samples: int  # number of calibration samples
    tensors: tuple[TensorReport, ...]
    layers: tuple[LayerReport, ...]
    outputs: Mapping[str, float]  # signal to noise of each output, in decibels
    agreement: float | None  # share of rows with the same largest score, if any
    correction: str
    notes: tuple[str, ...] = ()
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def poor(self) -> tuple[LayerReport, ...]:
        found = (layer for layer in self.layers if layer.output_db < POOR)
        return tuple(sorted(found, key=lambda layer: layer.output_db))

    def to_json(self) -> JsonObject:
        return {
            "samples": self.samples,
            "correction": self.correction,
            "outputs_db": {name: json_number(value) for name, value in self.outputs.items()},
            "agreement": self.agreement,
            "layers": [layer.to_json() for layer in self.layers],
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "notes": list(self.notes),
        }


def constant_notes(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    some = ", ".join(f"'{name}'" for name in names[:3]) + (" …" if len(names) > 3 else "")
    return (
        f"calibration leaves {len(names)} of the tensors constant ({some}): "
        "their ranges are unknown; calibrate with data as the model will see them",
    )


FORMATS: Final = ("pdf", "png", "svg")
_COLUMNS: Final = 4
_BARS: Final = 128


def check_drawing(path: Path) -> tuple[Any, str]:
    """Return matplotlib's figure class, and a file's format. Raises UsageError: one is missing."""
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
