"""The place of a batch's rows in a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]


class MixedError(Exception):
    """Rows of a batch may depend on each other; the message continues "mean 'pooled' …"."""


@dataclass(frozen=True, slots=True)
class Part:
    """The axis that has the rows, with the extent ``outer * rows * inner``.

    Sequences of words, one after the other, are an axis of ``rows * inner``. Steps of time, each
    with all sequences, are an axis of ``outer * rows``.

    `outer` is the number of blocks; every block has all rows. `inner` is the number of consecutive
    indices that belong to one row.
    """

    axis: int
    outer: int = 1
    inner: int = 1

    def moved(self, axis: int) -> Part:
        return Part(axis, self.outer, self.inner)

    def extent(self, rows: int) -> int:
        """Return the axis' extent, for so many rows of a batch."""
        return self.outer * rows * self.inner

    def stride(self, shape: Shape) -> int:
        """Return the number of elements, in C order, from the start of one row to that of the next.

        It stays the same when a tensor is reshaped.
        """
        return self.inner * math.prod(shape[self.axis + 1 :])

    def of_one(self, shape: Shape) -> Shape:
        extents = list(shape)
        extents[self.axis] = self.outer * self.inner
        return tuple(extents)


def find_part(stride: int, shape: Shape, rows: int) -> Part:
    """Return the axis of a shape that has the rows: the inverse of `Part.stride`.

    `stride` is the number of elements from one row to the next one. There is more than one of the
    `rows` of the batch.

    Raises MixedError if the rows lie along several axes.
    """
    inside = 1  # elements for each index of the axis
    for axis in reversed(range(len(shape))):
        whole = inside * shape[axis]
        if stride * rows <= whole:
            if stride % inside or whole % (stride * rows):
                break
            return Part(axis, whole // (stride * rows), stride // inside)
        inside = whole
    raise MixedError("spreads the rows of a batch over several axes")
