"""Integers that remember how they follow from the sizes of a kernel's tensors.

Templates compute extents of loops and tensors in Python. Given traced sizes, they compute traced
integers, and each formula is noted with its value. Comparisons are not noted: their results hold
where other sizes compare alike. `larger` and `smaller` are noted.

A traced integer also has the values that it has at the typical and at the smallest sizes. Templates
choose tiles for the typical sizes (`typical_of`), and none that the smallest do not fill
(`least_of`). They make code for any extent where an extent is traced (`varies`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Self, TypeVar, cast

from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import OPERATIONS, Operation
from neocpu.schedules.vocabulary.formula_text import Formula, to_text

ATTRIBUTE: Final = "neocpu.formulas"
"""The attribute of a kernel with the formulas that were noted while it was made, in JSON."""

_T = TypeVar("_T")

_NOTED: ContextVar[dict[Formula, int] | None] = ContextVar("noted", default=None)
_TRACING: ContextVar[_Calls | None] = ContextVar("tracing", default=None)


class Traced(int):
    """An integer with its formula; arithmetic with integers gives others.

    `typical`, `least`: its values at the typical sizes and at the smallest.
    """

    formula: Formula
    typical: int
    least: int

    def __new__(cls, value: int, formula: Formula, typical: int, least: int) -> Self:
        made = super().__new__(cls, value)
        made.formula, made.typical, made.least = formula, typical, least
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

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __neg__(self) -> Any:
        return _combined("-", 0, self)


def _combined(operation: Operation, left: Any, right: Any) -> Any:
    compute = OPERATIONS[operation]
    if not isinstance(left, int) or not isinstance(right, int):
        return compute(*(int(each) if isinstance(each, int) else each for each in (left, right)))
    value = compute(int(left), int(right))
    typical = compute(typical_of(left), typical_of(right))
    # Where a divisor shrinks to nothing, no tile depends on the quotient.
    divides = operation != "//" or least_of(right)
    least = compute(least_of(left), least_of(right)) if divides else 0
    return Traced(value, (operation, _formula(left), _formula(right)), typical, least)


def _formula(value: int) -> Formula:
    return value.formula if isinstance(value, Traced) else int(value)


def varies(*extents: Any) -> bool:
    """Return whether one of these integers depends on sizes that a call chooses."""
    return any(isinstance(each, Traced) for each in extents)


def typical_of(value: _T) -> _T:
    """Return an integer, or what is made of integers, as it is at the typical sizes."""
    return cast(_T, _mapped(value, lambda _, n: n.typical if isinstance(n, Traced) else n))


def least_of(value: _T) -> _T:
    """Return an integer, or what is made of integers, as it is at the smallest sizes."""
    return cast(_T, _mapped(value, lambda _, n: n.least if isinstance(n, Traced) else n))


def larger(one: int, other: int) -> int:
    """Return the larger integer, which is noted if it varies."""
    if not varies(one, other):
        return max(one, other)
    found: int = _combined("max", one, other)
    return found


def smaller(one: int, other: int) -> int:
    """Return the smaller integer, which is noted if it varies."""
    return -larger(-one, -other) if varies(one, other) else min(one, other)


def _mapped(value: Any, change: Callable[[str, int], int], path: str = "") -> Any:
    """Return ``value`` with each integer in it changed, given its path."""
    if isinstance(value, int):
        return value if isinstance(value, bool) else change(path, value)
    if isinstance(value, tuple):
        made = [_mapped(each, change, f"{path}.{at}") for at, each in enumerate(value)]
        if all(new is old for new, old in zip(made, value, strict=True)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init]
        pairs = [(name, getattr(value, name)) for name in names]
        new = {name: _mapped(each, change, f"{path}.{name}") for name, each in pairs}
        same = all(new[name] is each for name, each in pairs)
        return value if same else replace(value, **new)
    return value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KernelKeys:
    """The arguments from which the kernels of a program are made, at one size of its inputs.

    `by_name` has those of each name in the order in which kernels are asked for.
    """

    by_name: Mapping[str, list[Any]]


class _Calls:
    """The kernels that a program for one size has asked for so far.

    `known` are the arguments at the typical, the smallest and the largest sizes.
    """

    def __init__(self, known: tuple[KernelKeys, KernelKeys, KernelKeys] | None) -> None:
        self.known = known
        self.asked: dict[str, list[Any]] = defaultdict(list)


@contextmanager
def recording() -> Iterator[KernelKeys]:
    """Yield the arguments of the kernels that are asked for meanwhile."""
    calls = _Calls(None)
    token = _TRACING.set(calls)
    try:
        yield KernelKeys(by_name=calls.asked)
    finally:
        _TRACING.reset(token)


def is_recording() -> bool:
    """Return whether kernels are asked for that nobody calls (`recording`)."""
    calls = _TRACING.get()
    return calls is not None and calls.known is None


@contextmanager
def tracing(typical: KernelKeys, least: KernelKeys, most: KernelKeys) -> Iterator[None]:
    """Have `traced` trace the integers that differ between these arguments of kernels."""
    token = _TRACING.set(_Calls((typical, least, most)))
    try:
        yield
    finally:
        _TRACING.reset(token)


def for_any_size() -> bool:
    """Return whether a program for any size is being made, or its plan for one of them."""
    return _TRACING.get() is not None


def traced(name: str, key: _T) -> _T:
    """Return the arguments of the kernel called ``name`` with traced integers where they vary.

    Raises UnsupportedError: they differ from those at other sizes in more than integers.
    """
    calls = _TRACING.get()
    if calls is None:
        return key
    number = len(calls.asked[name])
    calls.asked[name].append(key)
    if calls.known is None:
        return key
    try:
        others = [integers_of(keys.by_name[name][number]) for keys in calls.known]
    except (KeyError, IndexError):
        raise UnsupportedError(
            f"{name} is not the same at all sizes: give a single shape"
        ) from None
    own = integers_of(key)
    if any(each.keys() != own.keys() for each in others):
        raise UnsupportedError(f"{name} is not the same at all sizes: give a single shape")
    typical, least, most = others

    def change(path: str, value: int) -> int:
        if len({value, typical[path], least[path], most[path]}) == 1:
            return value
        return Traced(value, path, typical[path], least[path])

    return cast(_T, _mapped(key, change))


def traces_of(key: Any) -> tuple[tuple[str, int, int], ...]:
    """Return which integers are traced, with their values at the typical and smallest sizes."""
    found: list[tuple[str, int, int]] = []

    def note(path: str, value: int) -> int:
        if isinstance(value, Traced):
            found.append((path, value.typical, value.least))
        return value

    _mapped(key, note)
    return tuple(found)


def integers_of(key: Any) -> dict[str, int]:
    """Return the integers that a kernel's arguments consist of, by their places."""
    found: dict[str, int] = {}

    def note(path: str, value: int) -> int:
        found[path] = int(value)
        return value

    _mapped(key, note)
    return found


def with_integers(key: _T, integers: Mapping[str, int]) -> _T:
    """Return a kernel's arguments with other integers, by their places."""
    return cast(_T, _mapped(key, lambda path, _: integers[path]))


@contextmanager
def _noting() -> Iterator[dict[Formula, int]]:
    """Yield the values of all formulas of traced integers, which are noted meanwhile."""
    noted: dict[Formula, int] = {}
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def with_formulas(key: Any, build: Callable[[], Any]) -> Any:
    """Return ``build()``, a kernel, with its formulas if integers of ``key`` are traced."""
    if not traces_of(key):
        return build()

    def note(_: str, value: int) -> int:
        if isinstance(value, Traced) and isinstance(value.formula, str):
            noted.setdefault(value.formula, int(value))
        return value

    with _noting() as noted:
        _mapped(key, note)
        func = build()
    return func.with_attr(ATTRIBUTE, to_text(noted))
