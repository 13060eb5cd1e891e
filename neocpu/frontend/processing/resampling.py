"""Resizing along one axis, as a matrix and as the few of its elements that are not zero.

Both libraries that pictures are resized with are linear in them: Pillow's ``BILINEAR`` sums all
pixels that an output covers, OpenCV's ``INTER_LINEAR`` the two next to its centre. They round to
bytes, Pillow after each axis; nothing is rounded here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Taps:
    """Output i is the sum over t of ``weights[i, t] * data[first[i] + t]``.

    Attributes
    ----------
    first : array
        (outputs,), int32.
    weights : array
        (outputs, taps), float32.
    """

    first: NDArray[np.int32]
    weights: Matrix


def resampling_matrix(
    extent: int, output: int, sampling: str, first: int = 0, length: int | None = None
) -> Matrix:
    """Return the float32 matrix (output, extent) that resizes ``extent`` pixels to ``output``.

    Or ``length`` rows of it, from ``first`` on.

    Parameters
    ----------
    sampling : {"pillow", "opencv"}
        The filter: with antialiasing where it shrinks, or without.
    """
    scale = extent / output
    reach = max(scale, 1.0) if sampling == "pillow" else 1.0
    centres = (np.arange(first, output if length is None else first + length) + 0.5) * scale
    if sampling == "opencv":  # pixels at the edges go on outside
        centres = np.clip(centres, 0.5, extent - 0.5)
    places = np.arange(extent) + 0.5
    weights = np.clip(1 - np.abs(places[None, :] - centres[:, None]) / reach, 0, None)
    normalised: Any = weights / weights.sum(axis=1, keepdims=True)
    return np.asarray(normalised, np.float32)


def taps_of(matrix: Matrix) -> Taps:
    """Return the elements of a matrix that are not zero; each row has some, side by side."""
    filled = matrix != 0
    outputs, extent = matrix.shape
    first = filled.argmax(axis=1)
    last = extent - filled[:, ::-1].argmax(axis=1)
    count = int((last - first).max())
    first = np.minimum(first, extent - count)
    columns = first[:, None] + np.arange(count)
    return Taps(first.astype(np.int32), matrix[np.arange(outputs)[:, None], columns])
