"""Places of a picture's pixels in a model's input, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from neocpu.frontend.processing.processing import PictureInput, Resize
from neocpu.frontend.processing.resampling import Matrix, resampling_matrix

Sides: TypeAlias = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a picture, resized.

    Attributes
    ----------
    extent : int
        The picture's extent.
    resized : int
        The extent that it is scaled to.
    output : int
        The extent of the model's input.
    offset : int
        The place in the resized picture at which the input begins; below 0, the padding before it.
    sampling : str
    """

    extent: int
    resized: int
    output: int
    offset: int
    sampling: str

    @property
    def start(self) -> int:
        """The place at which the picture begins in the model's input."""
        return max(0, -self.offset)

    @property
    def length(self) -> int:
        """The extent of the model's input that the picture fills."""
        return min(self.output, self.resized)

    @property
    def matrix(self) -> Matrix:
        """The matrix that makes the filled part of the picture's pixels: (length, extent)."""
        first = max(0, self.offset)
        return resampling_matrix(self.extent, self.resized, self.sampling, first, self.length)

    @property
    def padded(self) -> Matrix:
        """The matrix that makes all of the model's input, zeros where nothing of the picture is."""
        made = np.zeros((self.output, self.extent), np.float32)
        made[self.start : self.start + self.length] = self.matrix
        return made

    @property
    def scale(self) -> float:
        """Pixels of the picture for one of the model's input."""
        return self.extent / self.resized


@dataclass(frozen=True, slots=True)
class Geometry:
    """Both sides of a picture, resized."""

    rows: Side
    columns: Side

    @property
    def fills(self) -> bool:
        """Whether the picture fills all of the model's input."""
        return all(side.length == side.output for side in (self.rows, self.columns))


def geometry_of(picture: PictureInput, size: tuple[int, int], resize: Resize | None) -> Geometry:
    """Return how a picture becomes ``size``, the model's height and width.

    A letterbox is sized and placed as ultralytics does it, a crop as torchvision: the side that is
    not the smaller one is rounded down, and the middle to even pixels.
    """
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


def _stretched(given: Sides, size: Sides) -> Sides:
    return size


def _letterboxed(given: Sides, size: Sides) -> Sides:
    ratio = min(size[0] / given[0], size[1] / given[1])
    return max(1, round(given[0] * ratio)), max(1, round(given[1] * ratio))


def _covering(given: Sides, size: Sides) -> Sides:
    """Return the smallest size of the picture's shape that covers ``size``."""
    if size[0] * given[1] >= size[1] * given[0]:
        return size[0], given[1] * size[0] // given[0]
    return given[0] * size[1] // given[1], size[1]


_RESIZED: Final[Mapping[str, Callable[[Sides, Sides], Sides]]] = {
    "stretch": _stretched,
    "letterbox": _letterboxed,
    "crop": _covering,
}
