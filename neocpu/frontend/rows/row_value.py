"""Facts about a tensor that are known before any run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neocpu.frontend.rows.extent import Extent


class RowError(Exception):
    """An error: a node cannot work on partly valid rows; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor; along one of its axes, possibly only the first indices are valid.

    Attributes
    ----------
    name : str
        The name.
    kind : int
        ONNX's code of the element type.
    shape : tuple of int
        The shape, with the upper bound along `axis`.
    axis : int or None
        The axis with invalid indices; None if all elements are valid.
    rows : Extent or None
        The number of valid indices along that axis.
    contents : tuple of Extent or None
        The elements, if they are integers or booleans that decide shapes or counts.
    pending : bool
        Whether no node makes it yet, because its contents suffice until a kernel reads it.
    spread_of : str or None
        The tensor that an Expand repeats along all axes but the first.
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
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, valid or not."""
        return math.prod(self.shape)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The shape at run time."""
        sizes = [Extent(extent) for extent in self.shape]
        if self.axis is not None:
            sizes[self.axis] = self.count
        return tuple(sizes)

    @property
    def count(self) -> Extent:
        """The number of valid rows, if not all are."""
        assert self.rows is not None, self
        return self.rows

    @property
    def known(self) -> tuple[int, ...] | None:
        """The elements, if they are the same in every run."""
        if self.contents is None or not all(each.known for each in self.contents):
            return None
        return tuple(each.constant for each in self.contents)

    def with_rows(self, axis: int | None, rows: Extent | None) -> Value:
        """Return the same tensor with a number of valid rows along an axis."""
        if axis is None or rows is None or rows == Extent(self.shape[axis]):
            return replace(self, axis=None, rows=None)
        return replace(self, axis=axis % self.rank, rows=rows)
