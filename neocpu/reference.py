"""The independent reference that compiled modules are verified against.

It is onnx's own reference evaluator, an executable form of the standard, with its slow operators in
fast numpy. Neither TVM nor ONNX Runtime is involved, so that a shared mistake is unlikely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu import reference_ops as ops
from neocpu import reference_resize as resize
from neocpu.reference_detection import NonMaxSuppression
from neocpu.reference_rows import pair_rows, row_count
from neocpu.reference_run import evaluate

Array: TypeAlias = npt.NDArray[Any]
_Errors: TypeAlias = tuple[float, float, bool]

_FAST_OPS = [
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
    resize.Resize,
    resize.Upsample,
]


def run_reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run ``model`` with numpy.

    Parameters
    ----------
    model : onnx.ModelProto
        Opset 7 or later, its external data loaded.
    inputs : mapping of str to array
        Every graph input that has no initializer, by name, in the model's dtypes and shapes.

    Returns
    -------
    dict of str to array
        The graph outputs by name, in graph order.
    """
    return evaluate(model, inputs, _FAST_OPS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far actual outputs are from the expected ones.

    Attributes
    ----------
    max_abs_error : float
        Largest ``|actual - expected|`` of all outputs; infinite where NaN, infinities or shapes
        differ.
    max_rel_error : float
        Largest norm-wise relative error: ``max|actual - expected| / max|expected|`` of an output.
    worst_output : str
        Name of the output with the largest relative error, or of one that misses the tolerance.
    ok : bool
        Whether every element of every output is within the tolerance, but for `unmatched_rows`.
    moved_rows, unmatched_rows : int
        Selected rows that came in another place, and those that only one side has. The errors are
        of the rows that both have.
    """

    max_abs_error: float
    max_rel_error: float
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
    infinity the same infinity. Integers and booleans must be equal.

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
        if all(results[name][2] for name in group):
            continue
        mine, theirs = ({name: side[name] for name in group} for side in (actual, expected))
        matched = _match(mine, theirs, rtol, atol)
        if matched is not None:
            results.update(matched.errors)
            moved += matched.moved
            unmatched += matched.unmatched
    if not results:
        return Comparison(0.0, 0.0, "", ok=True)
    worst = max(results, key=lambda name: (not results[name][2], results[name][1]))
    return Comparison(
        max_abs_error=max(result[0] for result in results.values()),
        max_rel_error=max(result[1] for result in results.values()),
        worst_output=worst,
        ok=all(result[2] for result in results.values()),
        moved_rows=moved,
        unmatched_rows=unmatched,
    )


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
        largest, relative, _ = _errors(actual[name][mine], value[theirs], rtol, atol)
        errors[name] = (largest, relative, True)
    return _Matched(errors, int((mine != theirs).sum()), row_count(actual, expected) - len(mine))


def _errors(actual: Array, expected: Array, rtol: float, atol: float) -> _Errors:
    """Return the absolute error, the norm-wise relative error and whether all is within bounds."""
    mismatch = (float("inf"), float("inf"), False)
    if actual.shape != expected.shape:
        return mismatch
    if expected.size == 0:
        return 0.0, 0.0, True
    if not np.issubdtype(expected.dtype, np.floating):
        # Exact even where float64 is not: int64 is compared as it is.
        if np.array_equal(actual, expected):
            return 0.0, 0.0, True
        rtol = atol = 0.0
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    if (
        not np.array_equal(a[~finite], e[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return mismatch
    a, e = a[finite], np.abs(e[finite])
    if e.size == 0:
        return 0.0, 0.0, True
    error = np.abs(a - expected.astype(np.float64)[finite])
    scale, largest = float(e.max()), float(error.max())
    within = bool((error <= rtol * e + atol * min(1.0, scale)).all())
    relative = 0.0 if largest == 0 else largest / scale if scale else float("inf")
    return largest, relative, within
