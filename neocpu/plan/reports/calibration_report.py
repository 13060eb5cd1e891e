"""The decisions that calibration data led to: layers in integers, their gain and their errors."""

from __future__ import annotations

from dataclasses import dataclass


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
    """The decisions that calibration data led to.

    Attributes
    ----------
    layers : tuple of IntegerLayer
        Layers in integers; none where all stay in float32.
    max_error, min_agreement : float or None
        The limits.
    error : float
        Norm-wise distance of outputs from float32, on data that gave no ranges.
    agreement : float or None
        Share of rows whose largest score is the same; None for models without rows of scores.
    samples : int
        Number of samples on which error and agreement were measured.
    integers_seconds, float32_seconds : float or None
        Seconds of a run, if this host timed both.
    excess : str or None
        Limit that the faster layers missed, if that left no layer in integers.
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
