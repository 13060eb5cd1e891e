"""The decisions that calibration data led to: layers in integers, their gain and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neocpu.plan.outcome import Calibration


@dataclass(frozen=True, slots=True)
class IntegerLayer:
    """A layer that computes in integers, or with weights that are stored as such."""

    name: str  # name of its node in the model
    result: str  # the tensor that it makes
    saved_seconds: float  # seconds that it saves against float32, as far as costs are known
    # Noise that it adds to the outputs, as a share of their power; 0 if it is not known.
    noise: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The decisions that calibration data led to, as a plan stores them."""

    stored: Calibration  # the decisions
    # Name of the node of each layer in integers, by the tensor that the layer makes.
    names: Mapping[str, str]
