"""Facts about tensors that are known before any run, and numbers of rows that a run decides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """A number that is found at run time, and its upper bound; the lower one is zero."""

    name: str  # the tensor that contains it: one int64, of shape (1,)
    most: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A sum of a constant and multiples of counts; equal extents are equal in every run."""

    constant: int
    terms: tuple[tuple[Count, int], ...] = ()  # counts, in order, each with its nonzero factor

    @classmethod
    def of(cls, count: Count) -> Extent:
        return cls(0, ((count, 1),))

    @property
    def known(self) -> bool:
        """Whether the extent is the same number in every run."""
        return not self.terms

    @property
    def most(self) -> int:
        """The upper bound."""
        return self.constant + sum(count.most * max(factor, 0) for count, factor in self.terms)

    @property
    def least(self) -> int:
        """The lower bound."""
        return self.constant + sum(count.most * min(factor, 0) for count, factor in self.terms)

    def __add__(self, other: Extent | int) -> Extent:
        other = as_extent(other)
        factors = dict(self.terms)
        for count, factor in other.terms:
            factors[count] = factors.get(count, 0) + factor
        terms = sorted((count, factor) for count, factor in factors.items() if factor)
        return Extent(self.constant + other.constant, tuple(terms))

    def __sub__(self, other: Extent | int) -> Extent:
        return self + as_extent(other).times(-1)

    def times(self, factor: int) -> Extent:
        if factor == 0:
            return Extent(0)
        terms = tuple((count, factor * each) for count, each in self.terms)
        return Extent(factor * self.constant, terms)

    def divided(self, divisor: int) -> Extent | None:
        """Return the quotient, or None if it is not integral for all counts."""
        if divisor == 0:
            return None
        numbers = (self.constant, *(factor for _, factor in self.terms))
        if any(number % divisor for number in numbers):
            return None
        terms = tuple((count, each // divisor) for count, each in self.terms)
        return Extent(self.constant // divisor, terms)

    def ratio(self, other: Extent) -> int | None:
        """Return the factor that always makes ``other`` equal to this extent, or None."""
        mine, theirs = self._leading, other._leading
        if not theirs or mine % theirs or other.times(mine // theirs) != self:
            return None
        return mine // theirs

    @property
    def _leading(self) -> int:
        return self.terms[0][1] if self.terms else self.constant


def as_extent(number: Extent | int) -> Extent:
    return Extent(number) if isinstance(number, int) else number


def product(extents: Iterable[Extent]) -> Extent | None:
    """Return the product of extents, or None if more than one of them is unknown."""
    result = Extent(1)
    for extent in extents:
        if extent.known:
            result = result.times(extent.constant)
        elif result.known:
            result = extent.times(result.constant)
        else:
            return None
    return result


class RowError(Exception):
    """An error: a node cannot work on partly valid rows; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor; along one of its axes, possibly only the first indices are valid."""

    name: str
    kind: int  # ONNX's code of the element type
    shape: tuple[int, ...]  # with the upper bound along `axis`
    axis: int | None = None  # that with invalid indices; None if all elements are valid
    rows: Extent | None = None  # the number of valid indices along that axis
    contents: tuple[Extent, ...] | None = None  # the elements, if they may decide shapes or counts
    pending: bool = False  # whether no node makes it yet, because its contents suffice
    spread_of: str | None = None  # the tensor that an Expand repeats along all axes but the first

    @property
    def rank(self) -> int:
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

    def like(self, other: Value) -> Value:
        """Return the same tensor with the valid rows of another."""
        return self.with_rows(other.axis, other.rows)
