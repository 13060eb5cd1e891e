"""Decisions of calibration data: layers in integers, their gain and their errors."""

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
        Seconds that it takes less than in float32, as far as costs are known.
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
        None, where all stay in float32.
    max_error, min_agreement : float or None
        The limits.
    error : float
        Norm-wise distance of outputs from float32, on data that no range was taken from.
    agreement : float or None
        Share of rows whose largest score is the same; None of models without rows of scores.
    samples : int
        Number of samples that these were measured on.
    integers_seconds, float32_seconds : float or None
        Seconds of a run, where this host timed both.
    excess : str or None
        Limit that the faster layers missed, where that left none.
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
