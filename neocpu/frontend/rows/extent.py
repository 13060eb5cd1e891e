"""Numbers of rows that only a run decides: sums of counts with known upper bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """A number that is found at run time.

    Attributes
    ----------
    name : str
        The tensor that contains it: one int64, of shape ``(1,)``.
    most : int
        The upper bound; the lower bound is zero.
    """

    name: str
    most: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A sum of a constant and multiples of counts.

    Equal extents are the same number in every run.

    Attributes
    ----------
    constant : int
        The constant.
    terms : tuple of (Count, int)
        Counts, in order, each with its nonzero factor.
    """

    constant: int
    terms: tuple[tuple[Count, int], ...] = ()

    @classmethod
    def of(cls, count: Count) -> Extent:
        """Return the extent that equals a count."""
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
        """Return a multiple."""
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
    """Return an integer as an extent."""
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
