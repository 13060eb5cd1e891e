"""The independent reference that compiled modules are verified against.

It is onnx's own reference evaluator, an executable form of the standard, with its slow operators in
fast numpy and what the standard leaves open defined. Neither TVM nor ONNX Runtime is involved, so
that a shared mistake is unlikely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu import reference_integer as integer
from neocpu import reference_lookup as lookup
from neocpu import reference_ops as ops
from neocpu import reference_resize as resize
from neocpu.reference_detection import NonMaxSuppression
from neocpu.reference_rows import pair_rows, row_count
from neocpu.reference_run import evaluate

Array: TypeAlias = npt.NDArray[Any]

_OPERATORS = [
    ops.AveragePool,
    ops.BatchNormalization,
    ops.Conv,
    ops.ConvTranspose,
    ops.Erf,
    ops.LRN,
    ops.LogSoftmax,
    ops.LpPool,
    ops.MaxPool,
    NonMaxSuppression,
    ops.Softmax,
    integer.Cast,
    integer.CastLike,
    integer.Pow,
    lookup.Gather,
    lookup.GatherElements,
    lookup.GatherND,
    lookup.MaxUnpool,
    lookup.ScatterElements,
    lookup.ScatterND,
    resize.Resize,
    resize.Upsample,
]


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, double: bool = False
) -> dict[str, Array]:
    """Run ``model`` with numpy.

    Parameters
    ----------
    model : onnx.ModelProto
        Opset 7 or later, its external data loaded.
    inputs : mapping of str to array
        Every graph input that has no initializer, by name, in the model's dtypes and shapes.
    double : bool
        Compute in float64 whatever the model computes in float32: what rounding is measured
        against.

    Returns
    -------
    dict of str to array
        The graph outputs by name, in graph order.
    """
    return evaluate(model, inputs, _OPERATORS, double=double)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far actual outputs are from the expected ones.

    Attributes
    ----------
    max_abs_error : float
        Largest ``|actual - expected|`` of all outputs; infinite where NaN, infinities or shapes
        differ.
    max_rel_error : float
        Largest ``max|actual - expected| / max|expected|`` of an output.
    norm_error : float
        Largest norm-wise relative error: ``‖actual - expected‖ / ‖expected‖`` of an output, in the
        2-norm.
    worst_output : str
        Name of the output with the largest norm-wise error, or of one that misses the tolerance.
    ok : bool
        Whether every element of every output is within the tolerance, but for `unmatched_rows`.
    moved_rows, unmatched_rows : int
        Selected rows that came in another place, and those that only one side has. The errors are
        of the rows that both have.
    """

    max_abs_error: float
    max_rel_error: float
    norm_error: float
    worst_output: str
    ok: bool
    moved_rows: int = 0
    unmatched_rows: int = 0


def compare(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    rtol: float = 1e-3,
    atol: float = 1e-4,
    row_groups: Sequence[Sequence[str]] = (),
) -> Comparison:
    """Compare outputs by name.

    An element is within the tolerance if ``|a - e| <= rtol * |e| + atol * min(1, max|e|)``, where
    the maximum runs over its output: the absolute part shrinks with an output of small values (a
    softmax over a thousand classes), which a fixed one would wave through. NaN must meet NaN and an
    infinity the same infinity. Integers and booleans must be equal. Differences too small for a
    normal number of float32 are none.

    Outputs of rows that a NonMaxSuppression selected are compared the same way first. If that
    fails, because scores or overlaps are as close to each other or to a threshold as rounding, the
    rows are matched as sets; at most `reference_rows.UNMATCHED_ROWS` of them may lack a partner.

    Parameters
    ----------
    actual, expected : mapping of str to array
        ``actual`` has at least the names of ``expected``.
    rtol, atol : float
        Relative and absolute tolerance.
    row_groups : sequence of sequence of str
        Outputs whose rows describe the same selection, by name.

    Returns
    -------
    Comparison
        Over all outputs.
    """
    results = {name: _errors(actual[name], value, rtol, atol) for name, value in expected.items()}
    moved = unmatched = 0
    for group in row_groups:
        if all(results[name].ok for name in group):
            continue
        mine, theirs = ({name: side[name] for name in group} for side in (actual, expected))
        matched = _match(mine, theirs, rtol, atol)
        if matched is not None:
            results.update(matched.errors)
            moved += matched.moved
            unmatched += matched.unmatched
    if not results:
        return Comparison(0.0, 0.0, 0.0, "", ok=True)
    worst = max(results, key=lambda name: (not results[name].ok, results[name].norm))
    return Comparison(
        max_abs_error=max(result.absolute for result in results.values()),
        max_rel_error=max(result.relative for result in results.values()),
        norm_error=max(result.norm for result in results.values()),
        worst_output=worst,
        ok=all(result.ok for result in results.values()),
        moved_rows=moved,
        unmatched_rows=unmatched,
    )


@dataclass(frozen=True, slots=True)
class _Errors:
    """One output's errors, as `Comparison` describes them, and whether all is within bounds."""

    absolute: float
    relative: float
    norm: float
    ok: bool


_EXACT = _Errors(0.0, 0.0, 0.0, ok=True)
_MISMATCH = _Errors(math.inf, math.inf, math.inf, ok=False)

# Below, float32 loses its digits one by one, and compiled code takes numbers for zero.
_TINY: Final = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class _Matched:
    """The errors of the rows that both sides have, by output, and what became of the others."""

    errors: dict[str, _Errors]
    moved: int
    unmatched: int


def _match(
    actual: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float
) -> _Matched | None:
    """Match rows as sets; None if too many have no partner."""

    def close(name: str) -> Callable[[Array, Array], Array]:
        finite = np.abs(expected[name][np.isfinite(expected[name])])
        bound = atol * min(1.0, float(finite.max(initial=0.0)))
        return lambda a, e: np.isclose(a, e, rtol=rtol, atol=bound, equal_nan=True)

    pairs = pair_rows(actual, expected, {name: close(name) for name in expected})
    if pairs is None:
        return None
    mine, theirs = pairs
    errors = {}
    for name, value in expected.items():
        errors[name] = replace(_errors(actual[name][mine], value[theirs], rtol, atol), ok=True)
    return _Matched(errors, int((mine != theirs).sum()), row_count(actual, expected) - len(mine))


def _errors(actual: Array, expected: Array, rtol: float, atol: float) -> _Errors:
    if actual.shape != expected.shape:
        return _MISMATCH
    if expected.size == 0:
        return _EXACT
    if not np.issubdtype(expected.dtype, np.floating):
        # Exact even where float64 is not: int64 is compared as it is.
        if np.array_equal(actual, expected):
            return _EXACT
        rtol = atol = 0.0
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    if (
        not np.array_equal(a[~finite], e[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return _MISMATCH
    a, e = a[finite], e[finite]
    if e.size == 0:
        return _EXACT
    error, e = np.abs(a - e), np.abs(e)
    scale, largest = float(e.max()), float(error.max())
    if largest < _TINY:
        return replace(_EXACT, absolute=largest)
    if scale == 0:
        return replace(_MISMATCH, absolute=largest)
    # Divided by the largest value, whose square could overflow.
    norm = float(np.linalg.norm(error / scale) / np.linalg.norm(e / scale))
    within = bool((error <= rtol * e + atol * min(1.0, scale)).all())
    return _Errors(largest, largest / scale, norm, within)
