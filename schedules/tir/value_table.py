"""Formulas for integers that depend on sizes, found from their values at a few sizes.

Extents of tensors and loops follow from the sizes of a network's inputs by sums, products and
quotients: a convolution's output has ``(h + 2 * padding - kernel) // stride + 1`` rows, a loop over
register tiles ``ceil(w / 6)`` turns. `ValueTable` looks for the simplest such formula that gives
all values. If several are as simple and differ at other sizes, it takes none of them: more sizes
are needed to tell them apart.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations_with_replacement, product
from typing import Final, TypeAlias

from neocpu.foundation.size_formulas import OPERATIONS, Entry, Operation, Term, values_of
from neocpu.schedules.tir.quotients import line, quotient
from neocpu.schedules.vocabulary.formula_text import Formula
from neocpu.schedules.vocabulary.layout import ceil_div

Values: TypeAlias = tuple[int, ...]
"""An integer's values, one for each size."""

# The most entries whose products are tried as the base of others.
MOST_FACTORS: Final = 24
# The largest of values from which on they are taken for a quotient of a product.
FEWEST_FOR_PRODUCTS: Final = 64
# Pads and windows, by which a factor may differ from a known entry.
MARGINS: Final = (0, *chain.from_iterable((more, -more) for more in range(1, 9)))
# The number of other sizes at which formulas are compared.
PROBES: Final = 96


class ValueTable:
    """The sizes, and integers that are computed from them.

    Entries are numbered from 0 on. The first ones are the sizes themselves: ``sizes`` has a tuple
    of values for each. `entries` has those that are known before, from other values, and
    `range_of` sizes between whose least and largest formulas are compared, by default the same.
    """

    def __init__(
        self,
        sizes: Sequence[Values],
        entries: Sequence[Entry] = (),
        range_of: Sequence[Values] | None = None,
    ) -> None:
        self._count = len(sizes[0])
        self.entries: list[Entry] = list(entries)
        # The values at the given sizes come first, then those at sizes between them.
        rows = [*zip(*sizes, strict=True), *zip(*map(_between, range_of or sizes), strict=True)]
        columns = zip(*map(self.evaluate, rows), strict=True)
        self._vectors: list[Values] = list(columns)
        first = len(sizes)
        self._made = {
            (each.operation, each.left, each.right): Term(first + number, is_entry=True)
            for number, each in enumerate(self.entries)
        }
        self._numbers: dict[Values, int] = {}
        for number, vector in enumerate(self._vectors):
            self._numbers.setdefault(vector[: self._count], number)

    def find(self, values: Sequence[int], own: Sequence[int] = ()) -> Term | None:
        """Return the constant or the entry with these values; None if no formula was found.

        `own`: the entries whose quotients are tried, which are too many among all.
        """
        given = tuple(values)
        assert len(given) == self._count, given
        return self._easily(given) or self._composed(given, own)

    def find_all(self, every: Sequence[Values]) -> list[Term] | None:
        """Return the terms of several integers, which may follow from each other in any order."""
        found: dict[Values, Term] = {}
        # Small numbers have many formulas by chance, and often follow from larger ones.
        left = sorted(dict.fromkeys(every), key=max, reverse=True)
        while left:
            own = [term.number for term in found.values() if term.is_entry]
            solved = _first(left, self._easily) or _first(left, partial(self.find, own=own))
            if solved is None:
                return None
            values, found[values] = solved
            left.remove(values)
        return [found[each] for each in every]

    def express(self, formula: Formula, sizes: Mapping[str, Term]) -> Term:
        """Return the term of a formula of sizes, which are terms themselves."""
        if isinstance(formula, str):
            return sizes[formula]
        if isinstance(formula, int):
            return Term(formula)
        operation, left, right = formula
        one, other = self.express(left, sizes), self.express(right, sizes)
        if not one.is_entry and not other.is_entry:
            return Term(OPERATIONS[operation](one.number, other.number))
        # Not an entry with the same values: they may differ at sizes that are compared with none.
        return self._made.get((operation, one, other)) or self._append(operation, one, other)

    def evaluate(self, sizes: Sequence[int]) -> list[int]:
        """Return all entries' values at other sizes."""
        return values_of(self.entries, sizes)

    def _easily(self, values: Values) -> Term | None:
        """Return a constant, an entry, or one that follows from one other."""
        if len(set(values)) == 1:
            return Term(values[0])
        return self._known(values) or self._simple(values)

    def _known(self, values: Values) -> Term | None:
        number = self._numbers.get(values)
        return None if number is None else Term(number, is_entry=True)

    def _add(self, operation: Operation, left: Term, right: Term) -> Term:
        values = self._values_of(operation, left, right)
        if len(set(values)) == 1:
            return Term(values[0])
        known = self._known(values[: self._count])
        if known is not None and self._vectors[known.number] == values:
            return known
        return self._append(operation, left, right)

    def _append(self, operation: Operation, left: Term, right: Term) -> Term:
        values = self._values_of(operation, left, right)
        self._numbers.setdefault(values[: self._count], len(self._vectors))
        self._vectors.append(values)
        self.entries.append(Entry(operation, left, right))
        made = Term(len(self._vectors) - 1, is_entry=True)
        self._made[operation, left, right] = made
        return made

    def _values_of(self, operation: Operation, left: Term, right: Term) -> Values:
        def vector(term: Term) -> Values:
            if term.is_entry:
                return self._vectors[term.number]
            return (term.number,) * (self._count + PROBES)

        pairs = zip(vector(left), vector(right), strict=True)
        return tuple(OPERATIONS[operation](one, other) for one, other in pairs)

    def _simple(self, values: Values) -> Term | None:
        """Return an entry that follows from one other entry, by a factor, a sum and a quotient."""
        bases = list(self._bases())
        for parts, base in bases:
            if (found := line(base, values)) is not None:
                return self._linear(parts, *found)
        for parts, base in bases:
            if len(parts) > 1 and max(values) < FEWEST_FOR_PRODUCTS:
                break
            if (parted := quotient(base, values)) is not None:
                factor, added, divisor = parted
                top = self._linear(parts, factor, added)
                return self._add("//", top, Term(divisor))
        return None

    def _bases(self) -> Iterator[tuple[tuple[int, ...], Values]]:
        """Yield entries, then products of two; each as numbers of entries, with the values."""
        every = list(enumerate(self._vectors))
        yield from (((number,), vector) for number, vector in every)
        for (one, left), (other, right) in combinations_with_replacement(every[:MOST_FACTORS], 2):
            yield (one, other), tuple(a * b for a, b in zip(left, right, strict=True))

    def _linear(self, parts: tuple[int, ...], factor: int, added: int) -> Term:
        found, *others = (Term(number, is_entry=True) for number in parts)
        for other in others:
            found = self._add("*", found, other)
        if factor != 1:
            found = self._add("*", found, Term(factor))
        if added:
            found = self._add("+" if added > 0 else "-", found, Term(abs(added)))
        return found

    def _composed(self, values: Values, own: Sequence[int]) -> Term | None:
        """Return an entry that follows from two others, or from one beside a common factor."""
        for operation, other, rest in self._divisions(values):
            left = self._easily(rest) or self._ratio(rest, own)
            if left is not None:
                return self._add(operation, left, other())
        return self._ratio(values, own)

    def _ratio(self, values: Values, own: Sequence[int]) -> Term | None:
        """Return an entry that is the quotient of two of ``own``, rounded down or up.

        None if several fit, and differ at other sizes.
        """
        fits: dict[Values, tuple[int, int, bool]] = {}
        for bottom, top in product(own, own):
            parts, wholes = self._vectors[bottom], self._vectors[top]
            if bottom == top or min(parts) < 1:
                continue
            for up in (False, True):
                found = tuple(map(ceil_div if up else operator.floordiv, wholes, parts))
                if found[: self._count] == values:
                    fits.setdefault(found, (top, bottom, up))
        if len(fits) != 1:
            return None
        ((top, bottom, up),) = fits.values()
        whole, part = (Term(number, is_entry=True) for number in (top, bottom))
        if up:
            whole = self._add("-", self._add("+", whole, part), Term(1))
        return self._add("//", whole, part)

    def _divisions(self, values: Values) -> Iterator[tuple[Operation, Callable[[], Term], Values]]:
        """Yield an operation, a function that makes its right operand, and the values of its left
        operand.
        """
        common = math.gcd(*values)
        if common > 1:
            yield "*", partial(Term, common), tuple(value // common for value in values)
        every = list(enumerate(self._vectors))
        for more, (number, base) in product(MARGINS, every):
            pairs = [(value, part + more) for value, part in zip(values, base, strict=False)]
            if all(part and value % part == 0 for value, part in pairs):
                other = partial(self._linear, (number,), 1, more)
                yield "*", other, tuple(value // part for value, part in pairs)
        for number, base in every:
            other = partial(self._linear, (number,), 1, 0)
            yield "+", other, tuple(v - part for v, part in zip(values, base, strict=False))


def _first(
    every: Sequence[Values], find: Callable[[Values], Term | None]
) -> tuple[Values, Term] | None:
    """Return the first values for which ``find`` returns a term, and the term."""
    found = ((each, find(each)) for each in every)
    return next(((each, term) for each, term in found if term is not None), None)


def _between(values: Values) -> Values:
    """Return other sizes between the least and the largest, in the same steps."""
    least, step = min(values), math.gcd(*(value - values[0] for value in values)) or 1
    rng = random.Random(least)
    return tuple(rng.randrange(least, max(values) + 1, step) for _ in range(PROBES))
