"""Whether a compiled module computes what the model says, as exactly as was promised.

The truth is the reference in float64, so that its own rounding is no part of the error found. That
takes two to three times as long as in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu.reference import Comparison, compare, run_reference
from neocpu.schedules.accuracy import Accuracy
from neocpu.schedules.errors import AccuracyError

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]


def verify(
    model: onnx.ModelProto,
    inputs: Arrays,
    actual: Arrays,
    accuracy: Accuracy,
    row_groups: Sequence[Sequence[str]] = (),
) -> Comparison:
    """Compare what a module made of ``inputs`` with what ``model`` says.

    Element by element, within the tolerances of `compare`, which finds wrong answers; and norm-wise
    within the accuracy's bound.

    Where float32's range makes the difference and not its rounding (an intermediate value that
    overflows), the reference in float32 is the truth.

    Parameters
    ----------
    row_groups : sequence of sequence of str
        Outputs whose rows describe the same selection, by name.

    Raises
    ------
    AccuracyError
        If they differ by more, or the reference cannot run the model.
    """
    truth = _reference(model, inputs, double=True)
    found = compare(actual, truth, row_groups=row_groups)
    if _passes(found, accuracy):
        return found
    single = _reference(model, inputs, double=False)
    if any(not _same_range(single[name], truth[name]) for name in truth):
        found = compare(actual, single, row_groups=row_groups)
        if _passes(found, accuracy):
            return found
    raise AccuracyError(_reason(found, compare(single, truth, row_groups=row_groups), accuracy))


def _reference(model: onnx.ModelProto, inputs: Arrays, *, double: bool) -> dict[str, Array]:
    # Overflow and what follows from it is the model's, and compared.
    run: Callable[..., dict[str, Array]] = np.errstate(all="ignore")(run_reference)
    try:
        return run(model, inputs, double=double)
    except Exception as error:  # the evaluator raises whatever numpy does
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise AccuracyError(
            f"the reference cannot run this model ({reason[0]}), so nothing was checked or "
            "written; pass --no-verify to compile it unchecked"
        ) from error


def _passes(found: Comparison, accuracy: Accuracy) -> bool:
    return found.ok and found.norm_error <= accuracy.bound


def _same_range(single: Array, truth: Array) -> bool:
    """Whether float32 overflowed nowhere that float64 did not."""
    return single.shape != truth.shape or np.array_equal(np.isfinite(single), np.isfinite(truth))


def _reason(found: Comparison, single: Comparison, accuracy: Accuracy) -> str:
    if not found.ok:
        return (
            f"output '{found.worst_output}' differs from the reference by "
            f"{found.max_abs_error:.3g}, {found.max_rel_error:.3g} of its largest value; "
            "nothing was written: please report this model, or pass --no-verify to keep the result"
        )
    return (
        f"output '{found.worst_output}' errs by {found.norm_error:.2g} of its norm, more than the "
        f"{accuracy.bound:g} of --accuracy {accuracy} (numpy in float32 by {single.norm_error:.2g})"
        "; nothing was written: pass --no-verify to keep the result"
    )
