"""What integers saved and cost, of a float32 model that was compiled with calibration data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MICRO = 1e6


@dataclass(frozen=True, slots=True)
class IntegerLayer:
    """A layer that computes in integers, or with weights that are stored as such.

    Attributes
    ----------
    name : str
        Of its node in the model.
    result : str
        The tensor that it makes.
    saved_seconds : float
        What it takes less than in float32, as far as costs are known.
    noise : float
        What it does to the outputs by itself, as a share of their power; 0 if it is not known.
    """

    name: str
    result: str
    saved_seconds: float
    noise: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "layer": self.name,
            "saved_us": self.saved_seconds * MICRO,
            "noise": self.noise,
        }


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """What calibration data decided.

    Attributes
    ----------
    layers : tuple of IntegerLayer
        None, where all stay in float32.
    max_error, min_agreement : float or None
        The limits.
    error : float
        Of outputs, norm-wise from float32, on data that no range was taken from.
    agreement : float or None
        Share of rows whose largest score is the same; None of models without rows of scores.
    samples : int
        That these were measured on.
    integers_seconds, float32_seconds : float or None
        Of a run, where this host timed both.
    excess : str or None
        Which limit the layers that would be faster missed, where that left none.
    """

    layers: tuple[IntegerLayer, ...]
    max_error: float | None
    min_agreement: float | None
    error: float
    agreement: float | None
    samples: int
    integers_seconds: float | None = None
    float32_seconds: float | None = None
    excess: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "layers": [layer.to_json() for layer in self.layers],
            "max_error": self.max_error,
            "min_agreement": self.min_agreement,
            "error": self.error,
            "agreement": self.agreement,
            "samples": self.samples,
            "integers_us": _micro(self.integers_seconds),
            "float32_us": _micro(self.float32_seconds),
            "excess": self.excess,
        }


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MICRO
