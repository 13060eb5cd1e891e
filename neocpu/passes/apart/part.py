"""Where a tensor has the rows of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]


class MixedError(Exception):
    """Rows of a batch are not apart; the message continues "mean 'pooled' …"."""


@dataclass(frozen=True, slots=True)
class Part:
    """The axis that has the rows: of extent ``outer * rows * inner``, an index for each of these.

    Several sequences of words, one after the other, are an axis of ``rows * inner``; steps of time,
    of all sequences each, are one of ``outer * rows``.
    """

    axis: int
    outer: int = 1
    inner: int = 1

    def moved(self, axis: int) -> Part:
        """Return the same along another axis."""
        return Part(axis, self.outer, self.inner)

    def extent(self, rows: int) -> int:
        """Return the axis' extent, for so many rows of a batch."""
        return self.outer * rows * self.inner

    def stride(self, shape: Shape) -> int:
        """Return how many elements, in C order, lie between one row's and the next one's.

        It stays what it is when a tensor takes another shape.
        """
        return self.inner * math.prod(shape[self.axis + 1 :])

    def of_one(self, shape: Shape) -> Shape:
        """Return the shape of one row alone."""
        extents = list(shape)
        extents[self.axis] = self.outer * self.inner
        return tuple(extents)


def find_part(stride: int, shape: Shape, rows: int) -> Part:
    """Return which axis of a shape has the rows: the inverse of `Part.stride`.

    Parameters
    ----------
    stride : int
    shape : tuple of int
    rows : int
        Of the batch, more than one.

    Raises
    ------
    MixedError
        If several axes have them together.
    """
    inside = 1  # elements of an index of the axis
    for axis in reversed(range(len(shape))):
        whole = inside * shape[axis]
        if stride * rows <= whole:
            if stride % inside or whole % (stride * rows):
                break
            return Part(axis, whole // (stride * rows), stride // inside)
        inside = whole
    raise MixedError("spreads the rows of a batch over several axes")
