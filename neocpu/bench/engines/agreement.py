"""Check whether two contenders computed the same thing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.verification.reference.row_matching import Array, match_rows, pair_rows, row_count
from neocpu.verification.reference.tolerance import tolerances

MAX_RELATIVE_ERROR: Final = 1e-3  # largest norm-wise difference of equal outputs
QUANTISED_ERROR: Final = 0.5  # the same in integers: engines round elsewhere, steps are coarse
BFLOAT16_ERROR: Final = 0.05  # the same in bfloat16, which engines use by default if they can
# The largest difference between elements of one detection, as a share of the output's largest.
SAME_DETECTION: Final = 0.1


def paired_rows(
    outputs: Sequence[AnyArray],
    reference: Sequence[AnyArray],
    groups: Sequence[Sequence[int]],
    tolerance: float = MAX_RELATIVE_ERROR,
) -> tuple[Sequence[AnyArray], Sequence[AnyArray], float]:
    """Bring rows that describe detections into the reference's order, if that makes them equal.

    Correct engines swap detections with nearly equal scores, or lose one at a threshold. Outputs
    stay if they are comparable as they are, or too many rows have no partner.

    groups: positions of the outputs whose rows describe the same detections.
    tolerance: above `MAX_RELATIVE_ERROR`, so many rows may differ, as a share.
    Returns missing: the share of rows without a partner, left out in fewer bits.
    """
    ours, theirs, missing = list(outputs), list(reference), 0.0
    for group in groups:
        mine, other = ({str(i): side[i] for i in group} for side in (ours, theirs))
        if relative_error([*mine.values()], [*other.values()]) <= MAX_RELATIVE_ERROR:
            continue
        pairs = pair_rows(mine, other, {i: tolerances(each) for i, each in other.items()})
        alike = all(mine[i].shape[1:] == each.shape[1:] for i, each in other.items())
        if pairs is None and alike and tolerance > MAX_RELATIVE_ERROR:
            pairs = _roughly_paired(mine, other, tolerance)
            missing = max(missing, 1 - len(pairs[0]) / max(row_count(mine, other), 1))
        if pairs is not None:
            for i in group:
                ours[i], theirs[i] = ours[i][pairs[0]], theirs[i][pairs[1]]
    return ours, theirs, missing


def _roughly_paired(
    mine: Mapping[str, AnyArray], other: Mapping[str, AnyArray], unmatched: float
) -> tuple[Array, Array]:
    near = {
        name: np.full(each.shape, SAME_DETECTION * np.abs(each).max(initial=0.0))
        for name, each in other.items()
    }
    return match_rows(mine, other, near, unmatched)


def relative_error(outputs: Sequence[AnyArray], reference: Sequence[AnyArray]) -> float:
    """Return the largest ``‖y - r‖ / ‖r‖`` over all outputs; ``inf`` if shapes or NaNs differ."""
    if len(outputs) != len(reference):
        return math.inf
    return max((_norm_error(y, r) for y, r in zip(outputs, reference, strict=True)), default=0.0)


def mismatch(
    outputs: Sequence[AnyArray], reference: Sequence[AnyArray], names: Sequence[str] = ()
) -> str:
    """Return why outputs cannot be compared (detectors may differ in shape); empty if they can."""
    if len(outputs) != len(reference):
        return f"{len(outputs)} outputs vs {len(reference)}"
    differences = []
    for index, (y, r) in enumerate(zip(outputs, reference, strict=True)):
        name = names[index] if index < len(names) else f"output {index}"
        if y.shape != r.shape:
            differences.append(f"{name} {y.shape} vs {r.shape}")
        elif _norm_error(y, r) == math.inf:
            differences.append(f"{name} holds NaN or infinity where only one of the two does")
    return ", ".join(differences)


def _norm_error(output: AnyArray, reference: AnyArray) -> float:
    if output.shape != reference.shape:
        return math.inf
    if np.array_equal(output, reference, equal_nan=output.dtype.kind == "f"):
        return 0.0
    y, r = output.astype(np.float64), reference.astype(np.float64)
    norm = float(np.linalg.norm(r))
    error = float(np.linalg.norm(y - r)) / (norm or 1.0)
    return error if math.isfinite(error) else math.inf
