"""Sizes that a call may choose, and formulas of the integers that follow from them."""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Operation: TypeAlias = Literal["+", "-", "*", "//", "max"]

OPERATIONS: Final[Mapping[Operation, Callable[[int, int], int]]] = {
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
    "//": op.floordiv,
    "max": max,
}
"""The functions of operations; quotients are rounded down."""


@dataclass(frozen=True, slots=True)
class Term:
    """An operand: a constant, or the number of a size or an entry."""

    number: int
    is_entry: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An integer that is computed from sizes and earlier entries."""

    operation: Operation
    left: Term
    right: Term


def values_of(entries: Sequence[Entry], sizes: Sequence[int]) -> list[int]:
    """Return the sizes and the values of all entries, in the order of their numbers."""
    found = list(sizes)
    for entry in entries:
        left, right = value_of(entry.left, found), value_of(entry.right, found)
        found.append(OPERATIONS[entry.operation](left, right))
    return found


def value_of(term: Term, values: Sequence[int]) -> int:
    """Return a term's value, given those of sizes and entries."""
    return values[term.number] if term.is_entry else term.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """An extent of inputs that each call chooses: ``least``, ``least + step``, up to ``most``.

    `typical`: the one of these that plans are made for.
    """

    name: str
    least: int
    most: int
    step: int
    typical: int

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most and (value - self.least) % self.step == 0

    def nearest(self, value: int) -> int:
        """Return the size that is nearest to ``value``; the larger one of two."""
        steps = (2 * (value - self.least) + self.step) // (2 * self.step)
        return min(max(self.least + steps * self.step, self.least), self.most)

    def at_least(self, value: int) -> int:
        """Return the smallest size that is no less than ``value``, which is at most the largest."""
        steps = -((self.least - value) // self.step)
        return self.least + max(steps, 0) * self.step

    def powers(self, most: int) -> list[int]:
        """Return sizes at powers of two, or next to them, and the largest, up to ``most``."""
        most = max(self.least, min(self.most, most))
        largest = most - (most - self.least) % self.step
        powers = (2**number for number in range(largest.bit_length()))
        return sorted({self.at_least(rows) for rows in powers if rows <= largest} | {largest})

    def __str__(self) -> str:
        by = "" if self.step == 1 else f"/{self.step}"
        return f"{self.least}..{self.most}{by}"
