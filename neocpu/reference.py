"""The independent reference that compiled modules are verified against.

It is onnx's own reference evaluator, an executable form of the standard, with its slow operators in
fast numpy. Neither TVM nor ONNX Runtime is involved, so that a shared mistake is unlikely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from neocpu import reference_ops as ops
from neocpu import reference_resize as resize

Array: TypeAlias = npt.NDArray[Any]

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
    evaluator = ReferenceEvaluator(model, new_ops=_FAST_OPS)
    outputs = evaluator.run(None, dict(inputs))
    return dict(zip(evaluator.output_names, outputs, strict=True))


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
        Whether every element of every output is within the tolerance.
    """

    max_abs_error: float
    max_rel_error: float
    worst_output: str
    ok: bool


def compare(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    rtol: float = 1e-3,
    atol: float = 1e-4,
) -> Comparison:
    """Compare outputs by name.

    An element is within the tolerance if ``|a - e| <= rtol * |e| + atol * min(1, max|e|)``, where
    the maximum runs over its output: the absolute part shrinks with an output of small values (a
    softmax over a thousand classes), which a fixed one would wave through. NaN must meet NaN and an
    infinity the same infinity. Integers and booleans must be equal.

    Parameters
    ----------
    actual, expected : mapping of str to array
        ``actual`` has at least the names of ``expected``.
    rtol, atol : float
        Relative and absolute tolerance.

    Returns
    -------
    Comparison
        Over all outputs.
    """
    results = [
        (name, *_errors(actual[name], value, rtol, atol)) for name, value in expected.items()
    ]
    if not results:
        return Comparison(0.0, 0.0, "", ok=True)
    worst = max(results, key=lambda result: (not result[3], result[2]))
    return Comparison(
        max_abs_error=max(result[1] for result in results),
        max_rel_error=max(result[2] for result in results),
        worst_output=worst[0],
        ok=all(result[3] for result in results),
    )


def _errors(actual: Array, expected: Array, rtol: float, atol: float) -> tuple[float, float, bool]:
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
