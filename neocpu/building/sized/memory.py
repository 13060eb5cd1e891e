"""Places for the tensors of a program for any size, as formulas.

Blocks of memory are placed for the typical sizes, so that those in use at the same time do not
overlap. At other sizes they keep their order: a block begins where the last of those ends that lie
below it and are in use at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from neocpu.building.sized.program import SizedProgram, SizedTensor
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.size_formulas import OPERATIONS, Entry, Operation, Term, value_of, values_of
from neocpu.lowering.memory.arena import ALIGN, Span, place

NOTHING: Final = Term(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedMemory:
    """The offset of each activation in the arena, and the arena's bytes.

    `entries`: those of the program, and further ones.
    """

    entries: tuple[Entry, ...]
    offsets: tuple[Term, ...]
    arena_bytes: Term


def place_blocks(program: SizedProgram, typical: Sequence[int], weights: int) -> SizedMemory:
    """Place the activations of a program, which has so many ``weights``.

    `typical`: the sizes at which the arena is as small as that of a program for them alone.
    """
    formulas = _Formulas(program.entries, len(typical))
    sizes = _block_sizes(program.activations, formulas)
    spans = _spans(program, len(program.inputs) + weights)
    values = values_of(formulas.entries, typical)
    numbers = sorted(sizes)
    groups = [(Span(0, value_of(sizes[number], values), *spans[number]),) for number in numbers]
    starts = dict(zip(numbers, place(groups).starts, strict=True))
    below = _blocks_below(starts, spans)
    found: dict[int, Term] = {}
    ends: dict[int, Term] = {}
    for number in sorted(numbers, key=lambda each: (starts[each], each)):
        found[number] = formulas.most(ends[each] for each in below[number])
        ends[number] = formulas.apply("+", found[number], sizes[number])
    covered = {each for others in below.values() for each in others}
    offsets = tuple(
        formulas.apply("+", found[each.block], each.offset)
        for each in program.activations
        if each.block is not None and each.offset is not None
    )
    arena = formulas.most(ends[number] for number in numbers if number not in covered)
    return SizedMemory(entries=tuple(formulas.entries), offsets=offsets, arena_bytes=arena)


def _block_sizes(activations: Sequence[SizedTensor], formulas: _Formulas) -> dict[int, Term]:
    """Return the bytes of each block, a multiple of `ALIGN`."""
    ends: dict[int, dict[Term, None]] = {}
    for each in activations:
        assert each.block is not None
        assert each.offset is not None
        end = formulas.apply("+", each.offset, formulas.product(each.shape, bytes_of(each.dtype)))
        ends.setdefault(each.block, {})[end] = None
    return {number: formulas.aligned(formulas.most(own)) for number, own in ends.items()}


def _spans(program: SizedProgram, constant: int) -> dict[int, tuple[int, int]]:
    """Return the first and the last call that use each block; results are used to the end.

    `constant`: the number of tensors before the activations.
    """
    found: dict[int, tuple[int, int]] = {}

    def use(operand: int, call: int) -> None:
        if operand >= constant:
            block = program.activations[operand - constant].block
            assert block is not None
            first, last = found.get(block, (call, call))
            found[block] = min(first, call), max(last, call)

    for call, (_, operands) in enumerate(program.calls):
        for operand in operands:
            use(operand, call)
    for operand in program.results:
        use(operand, len(program.calls))
    for each in program.activations:  # what no call uses lies anywhere
        assert each.block is not None
        found.setdefault(each.block, (0, 0))
    return found


def _blocks_below(
    starts: Mapping[int, int], spans: Mapping[int, tuple[int, int]]
) -> dict[int, list[int]]:
    """Return, for each block, those that it has to lie behind: no others imply them."""

    def meet(one: int, other: int) -> bool:
        return spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]

    ordered = sorted(starts, key=lambda each: (starts[each], each))
    every: dict[int, set[int]] = {}
    found: dict[int, list[int]] = {}
    for place_, number in enumerate(ordered):
        meeting = [each for each in ordered[:place_] if meet(each, number)]
        implied = set().union(*(every[each] for each in meeting)) if meeting else set()
        every[number] = {*meeting, *implied}
        found[number] = [each for each in meeting if each not in implied]
    return found


class _Formulas:
    """Entries, to which others are added where an equal one is not there yet."""

    def __init__(self, entries: Sequence[Entry], sizes: int) -> None:
        self.entries = list(entries)
        self._known = {entry: sizes + number for number, entry in enumerate(entries)}
        self._sizes = sizes

    def apply(self, operation: Operation, left: Term, right: Term) -> Term:
        if not left.is_entry and not right.is_entry:
            return Term(OPERATIONS[operation](left.number, right.number))
        if (operation == "+" and right == NOTHING) or (operation == "*" and right == Term(1)):
            return left
        if operation == "+" and left == NOTHING:
            return right
        entry = Entry(operation, left, right)
        if entry not in self._known:
            self._known[entry] = self._sizes + len(self.entries)
            self.entries.append(entry)
        return Term(self._known[entry], is_entry=True)

    def product(self, shape: Sequence[Term], size: int) -> Term:
        """Return the bytes of a tensor whose elements have ``size`` bytes."""
        constant = math.prod(term.number for term in shape if not term.is_entry) * size
        varying = sorted((term for term in shape if term.is_entry), key=lambda term: term.number)
        if not varying:
            return Term(constant)
        elements = reduce(lambda one, other: self.apply("*", one, other), varying)
        return self.apply("*", elements, Term(constant))

    def aligned(self, size: Term) -> Term:
        """Return a size that is rounded up to a multiple of `ALIGN`."""
        if size.is_entry:
            last = self.entries[size.number - self._sizes] if size.number >= self._sizes else None
            if last is not None and last.operation == "*" and _is_aligned(last.right):
                return size
        more = self.apply("+", size, Term(ALIGN - 1))
        return self.apply("*", self.apply("//", more, Term(ALIGN)), Term(ALIGN))

    def most(self, every: Iterable[Term]) -> Term:
        """Return the largest of several integers, 0 if there are none."""
        terms = list(dict.fromkeys(every))
        if not terms:
            return NOTHING
        return reduce(lambda one, other: self.apply("max", one, other), terms)


def _is_aligned(term: Term) -> bool:
    return not term.is_entry and term.number % ALIGN == 0
