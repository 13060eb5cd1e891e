"""Integers that remember how they follow from a workload's height and width.

Templates compute extents of loops and tensors in Python. Given traced sizes, they compute traced
integers, and each formula is noted with its value. Comparisons, `min` and `max` are not noted:
their results hold where other sizes compare alike. `larger` and `smaller` are noted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Self, TypeAlias

from neocpu.foundation.size_formulas import OPERATIONS, Operation

Formula: TypeAlias = "str | int | tuple[Operation, Formula, Formula]"
"""The name of a size, a constant, or an operation and its operands."""

ATTRIBUTE: Final = "neocpu.formulas"
"""The attribute of a kernel with the formulas that were noted while it was made, in JSON."""

_NOTED: ContextVar[dict[Formula, int] | None] = ContextVar("noted", default=None)
_TRACING: ContextVar[bool] = ContextVar("tracing", default=False)


class Traced(int):
    """An integer with its formula; arithmetic with integers gives others."""

    formula: Formula

    def __new__(cls, value: int, formula: Formula) -> Self:
        made = super().__new__(cls, value)
        made.formula = formula
        noted = _NOTED.get()
        if noted is not None:
            noted.setdefault(formula, int(value))
        return made

    def __add__(self, other: Any) -> Any:
        return _combined("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return _combined("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return _combined("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combined("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return _combined("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _combined("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _combined("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combined("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if isinstance(other, int) else int(self) % other

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self if isinstance(other, int) else other % int(self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __neg__(self) -> Any:
        return _combined("-", 0, self)


def _combined(operation: Operation, left: Any, right: Any) -> Any:
    one, other = (int(each) if isinstance(each, int) else each for each in (left, right))
    value = OPERATIONS[operation](one, other)
    if not all(isinstance(each, int) for each in (left, right, value)):
        return value
    return Traced(value, (operation, _formula(left), _formula(right)))


def larger(one: Any, other: Any) -> Any:
    """Return the larger of two integers, with its formula if one of them is traced."""
    if isinstance(one, Traced) or isinstance(other, Traced):
        return _combined("max", one, other)
    return max(one, other)


def smaller(one: Any, other: Any) -> Any:
    """Return the smaller of two integers, with its formula if one of them is traced."""
    return one - larger(one - other, 0)


def _formula(value: int) -> Formula:
    return value.formula if isinstance(value, Traced) else int(value)


@contextmanager
def tracing() -> Iterator[None]:
    """Have `with_formulas` note formulas."""
    token = _TRACING.set(True)
    try:
        yield
    finally:
        _TRACING.reset(token)


@contextmanager
def _noting() -> Iterator[dict[Formula, int]]:
    """Yield the values of all formulas of traced integers, which are noted meanwhile."""
    noted: dict[Formula, int] = {}
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def with_formulas(build: Callable[[int, int], Any], height: int, width: int) -> Any:
    """Return ``build(height, width)``, a kernel, with its formulas if these are traced."""
    if not _TRACING.get():
        return build(height, width)
    with _noting() as noted:
        func = build(Traced(height, "height"), Traced(width, "width"))
    return func.with_attr(ATTRIBUTE, to_text(noted))


def to_text(noted: Mapping[Formula, int]) -> str:
    """Return formulas and their values in JSON."""
    return json.dumps(list(noted.items()))


def from_text(text: str) -> dict[Formula, int]:
    """Read what `to_text` returned."""

    def read(formula: Any) -> Formula:
        if not isinstance(formula, list):
            assert isinstance(formula, str | int), formula
            return formula
        operation, left, right = formula
        return operation, read(left), read(right)

    return {read(formula): value for formula, value in json.loads(text)}
