"""The decisions that calibration data led to: layers in integers, their gain and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neocpu.plan.outcome import Calibration


@dataclass(frozen=True, slots=True)
class IntegerLayer:
    """A layer that computes in integers, or with weights that are stored as such.

    Attributes
    ----------
    name : str
        Name of its node in the model.
    result : str
        The tensor that it makes.
    saved_seconds : float
        Seconds that it saves against float32, as far as costs are known.
    noise : float
        Noise that it adds to the outputs, as a share of their power; 0 if it is not known.
    """

    name: str
    result: str
    saved_seconds: float
    noise: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The decisions that calibration data led to, as a plan stores them.

    Attributes
    ----------
    stored : Calibration
        The decisions.
    names : mapping of str to str
        Name of the node of each layer in integers, by the tensor that the layer makes.
    """

    stored: Calibration
    names: Mapping[str, str]
