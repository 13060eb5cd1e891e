"""The report on a quantised model: ranges, and errors against the float32 model, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import json_number
from neocpu.quantiser.histogram import Distribution
from neocpu.quantiser.qdq import TensorGrid

POOR: Final = 15.0
"""Signal to noise of a layer's output in decibels below which the layer is reported as poor: the
noise is a sixth of the signal."""


@dataclass(frozen=True, slots=True)
class TensorReport:
    """A tensor's grid, and its observed range."""

    name: str
    grid: TensorGrid
    low: float
    high: float
    method: str

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
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
    """The signal to noise in decibels of a layer's weights, and of its output in the network."""

    name: str
    operator: str
    weights_db: float
    output_db: float

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
    """The report on a quantised model."""

    samples: int  # number of calibration samples
    tensors: tuple[TensorReport, ...]
    layers: tuple[LayerReport, ...]
    outputs: Mapping[str, float]  # signal to noise of each output, in decibels
    # Share of rows whose largest score is the same; None for models without rows of scores.
    agreement: float | None
    correction: str
    notes: tuple[str, ...] = ()
    distributions: Mapping[str, Distribution] = field(default_factory=dict)

    @property
    def poor(self) -> tuple[LayerReport, ...]:
        """Layers that are worth leaving in float32, the worst first."""
        found = (layer for layer in self.layers if layer.output_db < POOR)
        return tuple(sorted(found, key=lambda layer: layer.output_db))

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
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
    """Return a note on tensors that had one value over all samples."""
    if not names:
        return ()
    some = ", ".join(f"'{name}'" for name in names[:3]) + (" …" if len(names) > 3 else "")
    return (
        f"calibration leaves {len(names)} of the tensors constant ({some}): "
        "their ranges are unknown; calibrate with data as the model will see them",
    )
