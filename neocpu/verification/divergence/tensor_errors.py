"""How far a tensor is from what it should be, how far it may be, and where in it the error is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.json_codec import value_to_json
from neocpu.plan.model_values import ModelValue
from neocpu.schedules.vocabulary import accuracy
from neocpu.verification.reference.tolerance import UNDERFLOW

DIRECT: Final = accuracy.STRICT.bound
"""What one operator may err in float32, norm-wise, on exact inputs: as much as a whole network of
direct summations may. Measured, they err a hundredth to a third of it."""

STEPS: Final = 0.1
"""Of a step between two values that 8 bits stand for, what a tensor may err, root mean square: one
in a hundred may be the next one, where rounding could not decide."""

UNSETTLED: Final = 4.0
"""How many times as much as rounding its inputs otherwise makes of it an operator may err besides.

Rounding within it, of differences or exponentials, weighs as much as that of what it reads.
"""

DECISIONS: Final = 1e-3
"""Share of whole numbers that may be others: places of a maximum, or which of two is larger."""

SHOWN: Final = 16
"""Parts of an axis whose shares in an error are told apart."""

DECADES: Final = range(-8, 3)
"""Powers of ten of a tensor's root mean square, by which the errors of elements are counted."""


def norm_error(actual: Array, expected: Array) -> float:
    """Return ``‖actual - expected‖ / ‖expected‖``; infinite where one alone is finite.

    And where not as many rows count. Of whole numbers and booleans, the share of those that differ.
    """
    if actual.shape != expected.shape:
        return math.inf
    if expected.dtype.kind in "biu" and actual.dtype.kind in "biu":
        return float(np.mean(actual != expected)) if expected.size else 0.0
    error, right = _difference(actual, expected)
    if not np.isfinite(error).all():
        return math.inf
    largest = float(np.abs(error).max(initial=0.0))
    if largest <= UNDERFLOW:
        return 0.0
    scale = float(np.abs(right).max(initial=0.0))
    if scale == 0:
        return math.inf
    # Divided by the largest value, whose square could overflow.
    return _norm(error / scale) / _norm(right / scale)


def _norm(array: Array) -> float:
    return math.sqrt(float(np.square(array).sum()))


def _difference(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Return the errors of elements, and what is right: zeros where both are the same infinity.

    The error is infinite where one side alone is finite, or both are other infinities.
    """
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(a) & np.isfinite(e)
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        error = np.where(finite, a - e, np.where(same, 0.0, math.inf))
    return error, np.where(np.isfinite(e), e, 0.0)


def bound_of(value: ModelValue, expected: Array, rounding: float) -> float:
    """Return what a tensor may err norm-wise, of exact inputs.

    Parameters
    ----------
    expected : array
        What it should be.
    rounding : float
        What comes of weights and data that its operator rounds and the model does not.
    """
    if DTYPES[value.dtype].kind == "bool" or (DTYPES[value.dtype].is_integer and not value.scale):
        return DECISIONS
    bounds = [DIRECT * value.error_factor, rounding]
    if value.dtype == BFLOAT16:
        bounds.append(accuracy.BFLOAT16.bound)
    if value.dtype == "float16":
        bounds.append(float(np.finfo(np.float16).eps))
    if value.scale:
        size = _norm(expected.astype(np.float64))
        bounds.append(STEPS * value.scale * math.sqrt(expected.size) / max(size, UNDERFLOW))
    return max(bounds)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of an axis, and its share of the squared error."""

    first: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class Where:
    """Where in a tensor its error is.

    Attributes
    ----------
    axes : tuple of tuple of Part
        Of each axis, stretches of it in order: of short ones every index.
    elements : tuple of pair of int
        How many elements err by up to ten to a power of the tensor's root mean square, and more
        than by the power before; the last one has all that err more.
    """

    axes: tuple[tuple[Part, ...], ...]
    elements: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "axes": value_to_json(self.axes),
            "elements": [{"up_to": 10.0**power, "count": count} for power, count in self.elements],
        }


def where_of(actual: Array, expected: Array) -> Where:
    """Return where in a tensor its error is; what is not finite errs as much as all else."""
    error, right = _difference(actual, expected)
    error = np.abs(error)
    finite = np.isfinite(error)
    largest = float(error[finite].max(initial=0.0))
    error = np.where(finite, error, max(largest, 1.0))
    scaled = np.square(error / max(float(error.max(initial=0.0)), UNDERFLOW))
    axes = tuple(_shares(scaled, axis) for axis in range(scaled.ndim))
    size = math.sqrt(float(np.mean(np.square(right)))) if right.size else 0.0
    with np.errstate(divide="ignore"):
        powers = np.ceil(np.log10(error / max(size, UNDERFLOW)))
    places = np.clip(powers, DECADES[0], DECADES[-1]).astype(int)
    counts = [int(np.count_nonzero(places == power)) for power in DECADES]
    return Where(axes, tuple(zip(DECADES, counts, strict=True)))


def _shares(squares: Array, axis: int) -> tuple[Part, ...]:
    others = tuple(other for other in range(squares.ndim) if other != axis)
    along = squares.sum(axis=others)
    total = float(along.sum()) or 1.0
    edges = np.linspace(0, len(along), min(SHOWN, len(along)) + 1).round().astype(int).tolist()
    pairs = itertools.pairwise(edges)
    return tuple(Part(a, b, float(along[a:b].sum()) / total) for a, b in pairs)
