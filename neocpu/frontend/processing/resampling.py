"""Resizing along one axis, as a matrix and as the nonzero elements of each row.

Both libraries that resize pictures are linear in the pixels: Pillow's ``BILINEAR`` sums all pixels
that an output covers, OpenCV's ``INTER_LINEAR`` the two next to its centre. They round to bytes,
Pillow after each axis; here nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Taps:
    """Output i is the sum over t of ``weights[i, t] * data[first[i] + t]``; int32 and float32."""

    first: NDArray[np.int32]
    weights: Matrix


def resampling_matrix(
    extent: int, output: int, sampling: str, first: int = 0, length: int | None = None
) -> Matrix:
    """Return the float32 matrix (output, extent) that resizes ``extent`` pixels to ``output``.

    If ``length`` is set, it has that many rows only, from ``first`` on. ``pillow`` antialiases when
    shrinking, ``opencv`` does not.
    """
    scale = extent / output
    reach = max(scale, 1.0) if sampling == "pillow" else 1.0
    centres = (np.arange(first, output if length is None else first + length) + 0.5) * scale
    if sampling == "opencv":  # edge pixels extend outside
        centres = np.clip(centres, 0.5, extent - 0.5)
    places = np.arange(extent) + 0.5
    weights = np.clip(1 - np.abs(places[None, :] - centres[:, None]) / reach, 0, None)
    normalised: Any = weights / weights.sum(axis=1, keepdims=True)
    return np.asarray(normalised, np.float32)


def taps_of(matrix: Matrix) -> Taps:
    """Return the nonzero elements of a matrix; each row has some, next to each other."""
    filled = matrix != 0
    outputs, extent = matrix.shape
    first = filled.argmax(axis=1)
    last = extent - filled[:, ::-1].argmax(axis=1)
    count = int((last - first).max())
    first = np.minimum(first, extent - count)
    columns = first[:, None] + np.arange(count)
    return Taps(first.astype(np.int32), matrix[np.arange(outputs)[:, None], columns])
