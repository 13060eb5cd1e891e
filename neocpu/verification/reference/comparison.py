"""The comparison of outputs with those of the reference, and the verdict on a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.schedules.vocabulary.accuracy import Accuracy
from neocpu.verification.reference.row_matching import pair_rows, row_count
from neocpu.verification.reference.tolerance import UNDERFLOW, may_overflow, tolerances, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The errors of actual outputs against the expected ones, of the rows that both have.

    Errors are infinite where NaN, infinities or shapes differ. The worst output has the norm-wise
    error, or misses the tolerance.
    """

    max_abs_error: float  # the largest ``|actual - expected|`` of all outputs
    max_rel_error: float  # the largest ``max|actual - expected| / max|expected|`` of an output
    norm_error: float  # the largest ``‖actual - expected‖ / ‖expected‖`` in the 2-norm
    worst_output: str
    ok: bool  # whether every element but those of unmatched rows is within the tolerance
    moved_rows: int = 0  # those in another place
    unmatched_rows: int = 0  # those that only one side has
    why: str = ""  # a reason that numbers do not express, such as ``has shape 2x3, not 2x4``


def compare(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    *,
    rounded: Sequence[Mapping[str, Array]] = (),
    row_groups: Sequence[Sequence[str]] = (),
) -> Comparison:
    """Compare outputs by name.

    Elements must be within `tolerance.tolerances`; NaN must meet NaN, and an infinity the same one.
    Integers and booleans must be equal. Differences below `tolerance.UNDERFLOW` do not count, nor
    does one unit in the last place of float16 or bfloat16, as the rounding of float32 may decide
    it.
    Outputs of rows that a NonMaxSuppression selected, in ``row_groups`` of one selection, are first
    compared in the same way. If that fails, as rounding may decide between scores or at a
    threshold, rows are matched as sets, and at most `row_matching.UNMATCHED_ROWS` may lack a
    partner.
    ``rounded`` has the same outputs, computed in float32. Elements may err more where these runs
    err, have the value that one of the runs has there, be infinite or NaN where a run is infinite
    or a part of the sum may be, and anything where a run is NaN. Selected rows are compared without
    these runs; if a run selects other rows, any are accepted, and the error is infinite.
    """
    selected = {name for group in row_groups for name in group}
    results = {
        name: _errors(actual[name], value, [] if name in selected else [r[name] for r in rounded])
        for name, value in expected.items()
    }
    moved = unmatched = 0
    for group in row_groups:
        if all(results[name].ok for name in group):
            continue
        mine, theirs = ({name: side[name] for name in group} for side in (actual, expected))
        matched = _match(mine, theirs)
        if matched is not None:
            errors, places, rest = matched
            results.update(errors)
            moved, unmatched = moved + places, unmatched + rest
        else:
            explained = any(not _selects(run, theirs) for run in rounded)
            results.update(dict.fromkeys(group, replace(_MISMATCH, ok=explained)))
    if not results:
        return Comparison(
            max_abs_error=0.0, max_rel_error=0.0, norm_error=0.0, worst_output="", ok=True
        )
    worst = max(results, key=lambda name: (not results[name].ok, results[name].norm))
    return Comparison(
        max_abs_error=max(result.absolute for result in results.values()),
        max_rel_error=max(result.relative for result in results.values()),
        norm_error=max(result.norm for result in results.values()),
        worst_output=worst,
        ok=all(result.ok for result in results.values()),
        moved_rows=moved,
        unmatched_rows=unmatched,
        why=results[worst].why,
    )


@dataclass(frozen=True, slots=True)
class _Errors:
    """The errors of one output, as in `Comparison`, and whether they are within bounds."""

    absolute: float
    relative: float
    norm: float
    ok: bool
    why: str = ""


_HALVES = ("float16", "bfloat16")
_EXACT = _Errors(0.0, 0.0, 0.0, ok=True)
_MISMATCH = _Errors(math.inf, math.inf, math.inf, ok=False)


def _match(
    actual: Mapping[str, Array], expected: Mapping[str, Array]
) -> tuple[dict[str, _Errors], int, int] | None:
    """Return errors of rows as sets, and numbers of moved and unmatched ones; None for too many."""
    pairs = pair_rows(actual, expected, {name: tolerances(e) for name, e in expected.items()})
    if pairs is None:
        return None
    mine, theirs = pairs
    errors = {}
    for name, value in expected.items():
        errors[name] = replace(_errors(actual[name][mine], value[theirs], []), ok=True)
    return errors, int((mine != theirs).sum()), row_count(actual, expected) - len(mine)


def _selects(run: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    equal = all(_errors(run[name], value, []).ok for name, value in expected.items())
    return equal or _match({name: run[name] for name in expected}, expected) is not None


def _errors(actual: Array, expected: Array, rounded: Sequence[Array]) -> _Errors:
    if actual.shape != expected.shape:
        shapes = ("x".join(map(str, each.shape)) or "of a scalar" for each in (actual, expected))
        return replace(_MISMATCH, why="has shape {}, not {}".format(*shapes))
    if expected.size == 0:
        return _EXACT
    if expected.dtype.name in _HALVES:
        actual = _to_one_unit(actual, expected)
        rounded = [_to_one_unit(run, expected) for run in rounded if run.shape == expected.shape]
        expected = expected.astype(np.float32)
    runs = [run for run in rounded if run.shape == expected.shape]
    if not np.issubdtype(expected.dtype, np.floating):
        # Compared as integers: float64 cannot distinguish all of them.
        right = np.logical_or.reduce([actual == value for value in (expected, *runs)])
        return _EXACT if right.all() else _distance(actual, expected, ~right, ok=False)
    right = within(actual, expected, tolerances(expected, runs))
    # The order of sums decides which infinities meet and make NaN, so these elements are unknown.
    undecided = np.zeros_like(right)
    for run in runs:
        undecided |= np.isnan(run) | ~(np.isfinite(run) | np.isfinite(actual))
    if runs and not np.isfinite(actual).all():
        undecided |= ~np.isfinite(actual) & may_overflow(expected)
    right |= undecided
    for run in runs if not right.all() else ():
        right |= within(actual, run, tolerances(run))
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not right[~finite].all():
        wrong = ~right & ~finite
        found, wanted = (each[wrong][0] for each in (actual, expected))
        at = f"{wrong.sum()} of {wrong.size} elements, the first {found}, not {wanted}"
        return replace(_MISMATCH, why=f"is NaN or infinite in other places: {at}")
    return _distance(actual, expected, finite & ~undecided, ok=bool(right.all()))


def _to_one_unit(actual: Array, expected: Array) -> Array:
    """Return 16-bit numbers as float32; those within one unit in the last place become expected."""
    wide, goal = actual.astype(np.float32), expected.astype(np.float32)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(wide - goal) <= np.spacing(np.abs(expected)), goal, wide)


def _distance(actual: Array, expected: Array, counted: Array, *, ok: bool) -> _Errors:
    """Return the errors of the counted elements, which are finite on both sides."""
    a, e = actual[counted].astype(np.float64), expected[counted].astype(np.float64)
    error, e = np.abs(a - e), np.abs(e)
    largest, scale = (float(each.max(initial=0.0)) for each in (error, e))
    if largest < UNDERFLOW:
        return replace(_EXACT, absolute=largest, ok=ok)
    if scale == 0:
        return _Errors(largest, math.inf, math.inf, ok)
    # Divided by the largest value, whose square could overflow.
    beyond = np.maximum(error - UNDERFLOW, 0.0)
    norm = float(np.linalg.norm(beyond / scale) / np.linalg.norm(e / scale))
    return _Errors(largest, largest / scale, norm, ok)


REFERENCE: Final = "numpy in float64"  # source of the truth wherever it can run a model

FLOAT32_FACTOR: Final = 4.0
"""Largest error of an artifact, as a multiple of that of numpy in float32, if no plan keeps the
promise.

Both sum the same products, numpy in blocks and ours in parts or one by one. `vocabulary.accuracy`
says that this makes a factor of one to five in a single long sum. Over a network, the two measure
about the same.
"""

ROUNDING: Final = 1e-2  # norm-wise error above which the cause is not rounding, but a wrong kernel


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing a run with the truth, and whether the run is as exact as promised.

    ``float32_error`` is the norm-wise error of numpy in float32; None if it was not needed. The
    reason says why the oracle is not the reference.
    """

    found: Comparison
    kept: bool
    float32_error: float | None = None
    oracle: str = REFERENCE
    reason: str = ""

    def is_rounding(self, accuracy: Accuracy) -> bool:
        """Whether a broken promise looks like rounding: all of an output errs, and not by much."""
        return accuracy.bound < self.found.norm_error <= ROUNDING

    @property
    def is_accepted(self) -> bool:
        """Whether the outputs are right: as exact as promised, or as exact as float32."""
        return self.kept or self.as_exact_as_float32

    @property
    def as_exact_as_float32(self) -> bool:
        """Whether the outputs are as exact as numpy in float32, except for the order of sums."""
        error = self.float32_error
        return error is not None and (
            self.found.ok and self.found.norm_error <= FLOAT32_FACTOR * error
        )
