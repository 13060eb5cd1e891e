"""Terms in JSON: a constant is an integer, and a reference an array of its number."""

from __future__ import annotations

from typing import Any, TypeAlias

from neocpu.foundation.size_formulas import Term

Shape: TypeAlias = tuple[Term, ...]


def written(term: Term) -> int | list[int]:
    return [term.number] if term.is_entry else term.number


def shape_written(shape: Shape) -> list[int | list[int]]:
    return list(map(written, shape))


def read(value: Any) -> Term:
    return Term(value[0], is_entry=True) if isinstance(value, list) else Term(value)


def shape_read(shape: Any) -> Shape:
    return tuple(map(read, shape))
