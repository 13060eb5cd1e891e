"""Building blocks of the expressions of vector functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx


def number(value: float) -> Any:
    return tirx.const(value, "float32")


def whole(value: int, bits: int = 32) -> Any:
    return tirx.const(value, f"int{bits}")


def to_even(value: Any) -> Any:
    """Return an expression of floats rounded to integers, half to even."""
    # TVM's own nearbyint is not vectorised.
    return tirx.call_llvm_pure_intrin(value.ty.dtype, "llvm.nearbyint", value)


def let(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return ``body`` applied to a name for ``value``, which is computed once."""
    var = tirx.Var("t", value.ty.dtype)
    return tirx.Let(var, value, body(var))


def horner(coefficients: tuple[float, ...], x: Any) -> Any:
    """Return a float32 polynomial; the first coefficient is that of the highest power."""
    result = number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + number(coefficient)
    return result


class Names:
    """A sequence of names for values that are each computed once."""

    def __init__(self) -> None:
        self._given: dict[Any, Any] = {}

    def give(self, value: Any) -> Any:
        var = tirx.Var("t", value.ty.dtype)
        self._given[var] = value
        return var

    def around(self, body: Any) -> Any:
        for var, value in reversed(self._given.items()):
            body = tirx.Let(var, value, body)
        return body
