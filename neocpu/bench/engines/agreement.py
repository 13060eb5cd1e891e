"""Whether two contenders computed the same thing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.verification.reference.row_matching import Array, match_rows, pair_rows, row_count
from neocpu.verification.reference.tolerance import tolerances

MAX_RELATIVE_ERROR: Final = 1e-3
"""Norm-wise difference from the reference above which a contender computes something else."""

QUANTISED_ERROR: Final = 0.5
"""The same of quantised models: engines round at other places, and a step is coarse."""

BFLOAT16_ERROR: Final = 0.05
"""The same in bfloat16, which engines with their own defaults compute in where the CPU does."""

SAME_DETECTION: Final = 0.1
"""How far apart elements of what is one detection to two models of fewer bits may be, as a share of
the output's largest."""


def paired_rows(
    outputs: Sequence[AnyArray],
    reference: Sequence[AnyArray],
    groups: Sequence[Sequence[int]],
    tolerance: float = MAX_RELATIVE_ERROR,
) -> tuple[Sequence[AnyArray], Sequence[AnyArray], float]:
    """Bring rows that describe detections into the reference's order, if that makes them equal.

    Scores closer than rounding change places between two correct engines, and a box that close to
    a threshold is found by one of them only. Outputs that are comparable as they are, and those
    of which too many rows have no partner, come back unchanged.

    Parameters
    ----------
    groups : sequence of sequence of int
        Positions of the outputs whose rows describe the same detections.
    tolerance : float
        Above `MAX_RELATIVE_ERROR`, of models of fewer bits, that share of the rows may be another
        detection altogether.

    Returns
    -------
    outputs, reference : sequence of array
    missing : float
        The share of rows that were left out in fewer bits, for they have no partner.
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
    """Return in which way outputs are not even comparable with the reference's; empty if they are.

    Models whose number of results depends on the data, such as detectors, differ in shape first.
    """
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
