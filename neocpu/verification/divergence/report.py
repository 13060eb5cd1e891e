"""Errors of tensors, their bounds and places, and the report of them, as ``--json`` prints it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.foundation.units import json_number, plural
from neocpu.plan.model_values import ModelValue
from neocpu.schedules.vocabulary import accuracy
from neocpu.verification.reference.tolerance import UNDERFLOW

MOST_NAMED: Final = 4  # number of operators before a wrong one that its line names


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTensor:
    """A tensor that both sides have, and the plan's operator that makes it, or else the kernel.

    The ``nodes`` lie between it and the compared tensors before it. ``error`` is norm-wise in a
    normal run, and grows from operator to operator; ``own_error`` is that of this operator alone on
    exact tensors. ``where`` is None if that is within its bound, or if numbers of rows differ.
    Operators ``before`` it, whose results it depends on, are not compared themselves.
    """

    name: str
    shape: tuple[int, ...]
    operator: str
    kernel: str
    precision: str
    nodes: tuple[str, ...]
    error: float
    own_error: float
    bound: float
    where: Where | None = None
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        made = f" ({', '.join(self.nodes)})" if self.nodes else ""
        more = len(self.before) - MOST_NAMED
        named = [*self.before[:MOST_NAMED], *([plural(more, "other")] if more > 0 else [])]
        others = f", or {' or '.join(named)} before it," if named else ""
        return (
            f"operator {self.operator}{others} makes '{self.name}'{made} wrong: on exact inputs it "
            f"errs by {self.own_error:.2g} of its norm, more than the bound of {self.bound:.2g}"
        )

    @property
    def kept(self) -> bool:
        """Whether its own error is within its bound."""
        return self.own_error <= self.bound

    @property
    def excess(self) -> float:
        """Its own error as a multiple of its bound."""
        return self.own_error / self.bound if self.bound else math.inf * (self.own_error > 0)

    def to_json(self) -> JsonObject:
        """Return the JSON form; null stands for infinity."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "operator": self.operator,
            "before": list(self.before),
            "kernel": self.kernel,
            "precision": self.precision,
            "nodes": list(self.nodes),
            "error": json_number(self.error),
            "own_error": json_number(self.own_error),
            "bound": json_number(self.bound),
            "kept": self.kept,
            "where": None if self.where is None else self.where.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The differences of an artifact's tensors from a model's, or from another artifact's.

    The source of the expected tensors is ``numpy in float64``, or the other artifact, which has
    ``model_tensors``. Compared ones are in the order in which the artifact makes them.
    """

    artifact: str
    other: str
    source: str
    inputs: str
    tensors: tuple[ComparedTensor, ...]
    model_tensors: int

    @cached_property
    def first(self) -> ComparedTensor | None:
        """The first tensor whose own error exceeds its bound."""
        return next((tensor for tensor in self.tensors if not tensor.kept), None)

    @cached_property
    def histogram(self) -> tuple[tuple[int, int], ...]:
        """Number of operators by the power of ten that bounds their errors, relative to bounds."""
        counts = Counter(_decade(tensor.excess) for tensor in self.tensors)
        return tuple((power, counts[power]) for power in range(_LEAST, _MOST + 1))

    def to_json(self) -> JsonObject:
        return {
            "artifact": self.artifact,
            "other": self.other,
            "source": self.source,
            "inputs": self.inputs,
            "model_tensors": self.model_tensors,
            "first": None if self.first is None else self.first.to_json(),
            "broken": sum(not tensor.kept for tensor in self.tensors),
            "histogram": [
                {"up_to": 10.0**power, "operators": count} for power, count in self.histogram
            ],
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


_LEAST, _MOST = -4, 5


def _decade(excess: float) -> int:
    """Return the least power of ten of the histogram that is not below a multiple."""
    if not excess > 10.0**_LEAST:
        return _LEAST
    return _MOST if math.isinf(excess) else min(_MOST, math.ceil(math.log10(excess)))


DIRECT: Final = accuracy.STRICT.bound
"""Largest norm-wise error of one operator in float32 on exact inputs: the bound of a whole network
of direct summations. Measured errors are a hundredth to a third of it."""

STEPS: Final = 0.1
"""Largest error (root mean square) of a tensor in 8 bits, as a multiple of the step between two
values: one element in a hundred may be a step off where its value is halfway."""

SENSITIVITY: Final = 4.0
"""Additional error of an operator, as a multiple of its change when its inputs are rounded
differently.

Rounding within the operator, of differences or exponentials, weighs as much as that of its inputs.
"""

DECISIONS: Final = 1e-3
"""Share of whole numbers that may differ: places of a maximum, or results of a comparison."""

SHOWN: Final = 16  # number of parts of an axis whose shares of an error are shown separately

DECADES: Final = range(-8, 3)
"""Powers of ten by which errors of elements are counted, relative to the root mean square."""


def norm_error(actual: Array, expected: Array) -> float:
    """Return ``‖actual - expected‖ / ‖expected‖``, or the share of integers that differ."""
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
    """Return the errors of elements, and the expected values with zero for those not finite.

    The error is 0 for the same infinity or NaN, and infinite where one side is finite or they
    differ.
    """
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(a) & np.isfinite(e)
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        error = np.where(finite, a - e, np.where(same, 0.0, math.inf))
    return error, np.where(np.isfinite(e), e, 0.0)


def bound_of(value: ModelValue, expected: Array, rounding: float) -> float:
    """Return the bound of a tensor's norm-wise error on exact inputs.

    ``rounding`` is the error of rounding weights and data where only its operator does so.
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
    """The places of an error in a tensor: stretches of each axis, and every index of short ones.

    ``elements`` has powers of ten, and numbers of elements whose errors are at most that multiple
    of the root mean square, and more than the previous; the last one has all larger errors.
    """

    axes: tuple[tuple[Part, ...], ...]
    elements: tuple[tuple[int, int], ...]

    def to_json(self) -> JsonObject:
        return {
            "axes": value_to_json(self.axes),
            "elements": [{"up_to": 10.0**power, "count": count} for power, count in self.elements],
        }


def where_of(actual: Array, expected: Array) -> Where:
    """Return the places of an error; elements that are not finite count as the largest error."""
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
