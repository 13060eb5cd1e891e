"""The mapping between a picture's pixels and a model's input, one axis after the other.

Pillow's ``BILINEAR`` sums all pixels that an output covers, OpenCV's ``INTER_LINEAR`` the two next
to its centre. They round to bytes, Pillow after each axis; here nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.frontend.processing.processing import PictureInput, Resize

Sides: TypeAlias = tuple[int, int]
"""The height and width."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a picture, resized, in pixels."""

    extent: int
    resized: int
    output: int  # of the model's input
    offset: int  # in the resized picture, of the model's input; a negative one is padding
    sampling: str

    @property
    def start(self) -> int:
        """The position in the model's input at which the picture begins."""
        return max(0, -self.offset)

    @property
    def length(self) -> int:
        """The number of the model's input pixels that the picture fills."""
        return min(self.output, self.resized)

    @property
    def matrix(self) -> Matrix:
        """The matrix that maps the picture's pixels to the filled part: (length, extent)."""
        first = max(0, self.offset)
        return resampling_matrix(self.extent, self.resized, self.sampling, first, self.length)

    @property
    def padded(self) -> Matrix:
        """The matrix that maps them to the whole input, with zeros outside the picture."""
        made = np.zeros((self.output, self.extent), np.float32)
        made[self.start : self.start + self.length] = self.matrix
        return made

    @property
    def scale(self) -> float:
        """Pixels of the picture per pixel of the model's input."""
        return self.extent / self.resized


@dataclass(frozen=True, slots=True)
class Geometry:
    rows: Side
    columns: Side

    @property
    def fills(self) -> bool:
        """Whether the picture fills all of the model's input."""
        return all(side.length == side.output for side in (self.rows, self.columns))


def geometry_of(picture: PictureInput, size: tuple[int, int], resize: Resize | None) -> Geometry:
    """Return the mapping to ``size`` (height, width), rounded as by ultralytics and torchvision."""
    given = (picture.height, picture.width)
    if resize is None:
        return Geometry(*(Side(side, side, side, 0, "opencv") for side in given))
    resized = _RESIZED[resize.fit](given, size)
    sides = []
    for extent, made, output in zip(given, resized, size, strict=True):
        spare = output - made
        offset = -round(spare / 2 - 0.1) if spare >= 0 else round(-spare / 2)
        sides.append(Side(extent, made, output, offset, resize.sampling))
    return Geometry(*sides)


def _letterboxed(given: Sides, size: Sides) -> Sides:
    ratio = min(size[0] / given[0], size[1] / given[1])
    return max(1, round(given[0] * ratio)), max(1, round(given[1] * ratio))


def _covering(given: Sides, size: Sides) -> Sides:
    if size[0] * given[1] >= size[1] * given[0]:
        return size[0], given[1] * size[0] // given[0]
    return given[0] * size[1] // given[1], size[1]


_RESIZED: Final[Mapping[str, Callable[[Sides, Sides], Sides]]] = {
    "stretch": lambda given, size: size,
    "letterbox": _letterboxed,
    "crop": _covering,
}


Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Taps:
    """Output i is the sum over t of ``weights[i, t] * data[first[i] + t]``; int32 and float32."""

    first: NDArray[np.int32]
    weights: Matrix


def resampling_matrix(
    extent: int, output: int, sampling: str, first: int = 0, length: int | None = None
) -> Matrix:
    """Return the float32 matrix (output, extent) that resizes ``extent`` pixels to ``output``, or
    ``length`` rows of it, from ``first`` on; ``pillow`` antialiases when shrinking.
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
