"""What is known of a tensor before any run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neocpu.frontend.rows.extent import Extent


class RowError(Exception):
    """A node cannot work on rows of which only so many count; the message says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor, of which along one axis only the first elements may count.

    Attributes
    ----------
    name : str
    kind : int
        ONNX's number of the element type.
    shape : tuple of int
        With the upper bound of the axis where not all counts.
    axis : int or None
        That axis; None where all counts.
    rows : Extent or None
        How many count along it.
    contents : tuple of Extent or None
        What the elements are, of integers and booleans that shapes or counts are made of.
    pending : bool
        Whether no node makes it yet: its contents are enough, until a kernel reads it.
    spread_of : str or None
        The tensor of which an Expand repeats the first axis' elements along all other axes.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    axis: int | None = None
    rows: Extent | None = None
    contents: tuple[Extent, ...] | None = None
    pending: bool = False
    spread_of: str | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, whether they count or not."""
        return math.prod(self.shape)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The shape that a run finds."""
        sizes = [Extent(extent) for extent in self.shape]
        if self.axis is not None:
            sizes[self.axis] = self.count
        return tuple(sizes)

    @property
    def count(self) -> Extent:
        """How many rows count, of a tensor where not all do."""
        assert self.rows is not None, self
        return self.rows

    @property
    def known(self) -> tuple[int, ...] | None:
        """The elements, if they are the same in every run."""
        if self.contents is None or not all(each.known for each in self.contents):
            return None
        return tuple(each.constant for each in self.contents)

    def with_rows(self, axis: int | None, rows: Extent | None) -> Value:
        """Return the same tensor with rows that may not all count."""
        if axis is None or rows is None or rows == Extent(self.shape[axis]):
            return replace(self, axis=None, rows=None)
        return replace(self, axis=axis % self.rank, rows=rows)
