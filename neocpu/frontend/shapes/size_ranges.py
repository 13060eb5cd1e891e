"""Ranges of sizes that a caller requests: the extents that one plan for all of them leaves open."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.size_formulas import Size, Term, value_of
from neocpu.frontend.shapes.input_shapes import MAX_ELEMENTS, InputShapes, is_ranged
from neocpu.frontend.shapes.requested_shapes import Shapes

Typical: TypeAlias = "Mapping[str, Sequence[int] | int] | Sequence[int]"
"""Typical shapes of inputs and extents of named dimensions; or a shape of the first with ranges."""

MAX_SIZES: Final = 16  # the most sizes of a plan, as the C library has it
MAX_SIZE: Final = 2**31  # the largest extent of an input that has ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRanges:
    """The sizes that each call of a plan chooses, and all requested shapes in terms of them.

    A size is called by its dimension (``h``), or by its place in a written shape (``x[2]``).
    """

    sizes: tuple[Size, ...]
    by_name: Mapping[str, tuple[Term, ...]]  # shapes of inputs; an entry's number is a size's
    named: Mapping[str, int]  # the numbers of sizes of named dimensions
    others: InputShapes  # the batch, and the shapes and values without ranges

    @classmethod
    def parse(
        cls,
        shapes: Shapes | None,
        typical: Typical | None = None,
        batch: int | None = None,
    ) -> SizeRanges | None:
        """Check the arguments of the Python interface; return None if they have no range.

        Ranges that are empty, go down, are too many or too large, and typical sizes outside them,
        are a `UsageError`.
        """
        given = shapes if isinstance(shapes, Mapping) else {}
        others = {name: each for name, each in given.items() if not is_ranged(each)}
        by_name: dict[str, tuple[Term, ...]] = {}
        sizes: list[Size] = []
        named: dict[str, int] = {}
        for name, each in given.items():
            if name in others:
                continue
            if not isinstance(each, range):
                by_name[name] = _terms(name, each, sizes)
            else:
                named[name] = _term(name, each, sizes).number
        if not sizes and typical is not None:
            raise UsageError(
                "--typical is for ranges of sizes, as h=32..2048/32 or x:1,3,32..2048/32,64: give "
                "a range, or leave it out"
            )
        found = cls(
            sizes=tuple(sizes),
            by_name=by_name,
            named=named,
            others=InputShapes.parse(others, batch) if sizes else InputShapes(),
        )
        found._refuse_large()
        if not sizes:
            return None
        return found if typical is None else found._with_typical(typical)

    def at(self, sizes: Sequence[int]) -> InputShapes:
        """Return the requested shapes with these extents in place of the ranges."""
        by_name = {
            name: tuple(value_of(term, sizes) for term in terms)
            for name, terms in self.by_name.items()
        }
        values = {name: sizes[number] for name, number in self.named.items()}
        return replace(
            self.others,
            by_name={**self.others.by_name, **by_name},
            values={**self.others.values, **values},
        )

    @property
    def typical(self) -> InputShapes:
        """The shapes that the plan is made for."""
        return self.at([size.typical for size in self.sizes])

    @property
    def largest(self) -> InputShapes:
        """The shapes at the largest sizes."""
        return self.at([size.most for size in self.sizes])

    @property
    def text(self) -> str:
        """The requested shapes that have ranges, as ``--shape`` takes them."""
        shapes = [f"{name}:{self._shape_text(name)}" for name in self.by_name]
        return " ".join([*shapes, *(f"{name}={self.sizes[n]}" for name, n in self.named.items())])

    def refuse_unplaced(self, placed: Collection[int]) -> None:
        """Raise a `UsageError` if the number of a named size is not in ``placed``."""
        for name, number in self.named.items():
            if number not in placed:
                raise UsageError(
                    f"--shape {name}={self.sizes[number]}: no input has this extent, and a value "
                    "that becomes a constant is one number; give one"
                )

    def _shape_text(self, name: str) -> str:
        terms = self.by_name[name]
        return ",".join(str(self.sizes[t.number] if t.is_entry else t.number) for t in terms)

    def _refuse_large(self) -> None:
        if len(self.sizes) > MAX_SIZES:
            raise UsageError(
                f"{len(self.sizes)} ranges of sizes: one plan has at most {MAX_SIZES}; fix some "
                "extents"
            )
        largest = self.largest.by_name
        for name in self.by_name:
            if (elements := math.prod(largest[name])) > MAX_ELEMENTS:
                raise UsageError(
                    f"--shape {name}:{self._shape_text(name)}: the largest has {elements} "
                    f"elements; at most {MAX_ELEMENTS} are supported: end ranges sooner"
                )

    def _with_typical(self, typical: Typical) -> SizeRanges:
        chosen: dict[int, int] = {}
        for name, each in self._typical_by_name(typical).items():
            if name in self.by_name and not isinstance(each, int):
                chosen |= self._typical_shape(name, each)
            elif name in self.named and not isinstance(each, Sequence):
                number = self.named[name]
                chosen[number] = _typical(self.sizes[number], each, f"{name}={each}")
            else:
                raise self._without_range(name, each)
        sizes = [replace(self.sizes[number], typical=each) for number, each in chosen.items()]
        changed = dict(zip(chosen, sizes, strict=True))
        return replace(self, sizes=tuple(changed.get(n, size) for n, size in enumerate(self.sizes)))

    def _typical_by_name(self, typical: Typical) -> Mapping[str, Sequence[int] | int]:
        if isinstance(typical, Mapping):
            return typical
        if not isinstance(typical, list | tuple):
            raise UsageError(
                "typical sizes are a mapping from names to shapes or numbers, as in {'x': (1, 3, "
                f"736, 1280)}}, got {typical!r}"
            )
        if not self.by_name:
            named = " ".join(f"{name}={self.sizes[n].typical}" for name, n in self.named.items())
            raise UsageError(
                f"--typical {','.join(map(str, typical))}: the ranges are of named dimensions; "
                f"name these, as {named}"
            )
        return {next(iter(self.by_name)): typical}

    def _typical_shape(self, name: str, shape: Any) -> dict[int, int]:
        """Return the extents of a typical shape that are sizes, by their numbers."""
        terms = self.by_name[name]
        extents = _whole_numbers(name, shape)
        text = f"{name}:{','.join(map(str, extents))}"
        if len(extents) != len(terms):
            raise UsageError(
                f"--typical {text} has {len(extents)} dimensions, --shape "
                f"{name}:{self._shape_text(name)} has {len(terms)}: give as many"
            )
        found = {}
        for axis, (term, extent) in enumerate(zip(terms, extents, strict=True)):
            if term.is_entry:
                found[term.number] = _typical(self.sizes[term.number], extent, text)
            elif extent != term.number:
                raise UsageError(
                    f"--typical {text}: dimension {axis} is {term.number} at all sizes; give "
                    f"{term.number}"
                )
        return found

    def _without_range(self, name: str, given: Any) -> UsageError:
        """Return the error of a typical shape or number whose input or dimension has no range."""
        text = f"{name}={given}"
        if isinstance(given, Sequence) and not isinstance(given, str):
            text = f"{name}:{','.join(map(str, given))}"
        known = (*self.by_name, *self.named)
        hint = "" if name in known else did_you_mean(name, known)
        return UsageError(
            f"--typical {text}: no such range is given, but {self.text}{hint or '; use its form'}"
        )


def fix_single(shapes: Shapes | None) -> Shapes | None:
    """Return requested shapes with the extent itself in place of each range that has only one."""
    if not isinstance(shapes, Mapping):
        return shapes
    return {
        name: _without_single(each) if is_ranged(each) else each for name, each in shapes.items()
    }


def _without_single(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return tuple(map(_without_single, given))
    return given[0] if isinstance(given, range) and len(given) == 1 else given


def _terms(name: str, shape: Any, sizes: list[Size]) -> tuple[Term, ...]:
    """Return the terms of an input's shape, and append its sizes."""
    return tuple(_term(f"{name}[{axis}]", extent, sizes) for axis, extent in enumerate(shape))


def _term(name: str, extent: Any, sizes: list[Size]) -> Term:
    """Return the term of an extent or a range; append the size of a range."""
    if not isinstance(extent, range):
        (fixed,) = _whole_numbers(name, [extent])
        _check_extents(name, fixed, fixed)
        return Term(fixed)
    if not extent:
        raise UsageError(f"the range of sizes of '{name}' is empty: end it after its beginning")
    least, most, step = extent[0], extent[-1], extent.step
    if step < 0:
        raise UsageError(f"the range of sizes of '{name}' goes down from {least}: let it go up")
    _check_extents(name, least, most)
    size = Size(name=name, least=least, most=most, step=step, typical=least)
    middle = round(math.sqrt(least * most))
    sizes.append(replace(size, typical=size.nearest(middle)))
    return Term(len(sizes) - 1, is_entry=True)


def _check_extents(name: str, least: int, most: int) -> None:
    if least < 1 or most > MAX_SIZE:
        wrong = least if least < 1 else most
        raise UsageError(
            f"'{name}' cannot be {wrong}: extents of shapes with ranges are 1 to {MAX_SIZE}"
        )


def _typical(size: Size, given: Any, text: str) -> int:
    """Return a typical size; `text` is what the caller gave."""
    (value,) = _whole_numbers(size.name, [given])
    if value not in size:
        raise UsageError(
            f"--typical {text}: '{size.name}' is {size}, which {value} is not in; the nearest is "
            f"{size.nearest(value)}"
        )
    return value


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(each) for each in given)
    except TypeError:
        raise UsageError(
            f"extents of '{name}' are whole numbers or ranges of them, got {given!r}"
        ) from None
