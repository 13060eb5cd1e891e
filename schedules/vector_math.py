"""Exponentials that vectorise: polynomials in place of one library call per element.

LLVM lowers ``exp`` of a vector to a scalar ``expf`` per lane. The replacements below are arithmetic
alone, so they run at full vector width, within a few units in the last place (``exp``) or 1e-6
absolute (``tanh``, ``erf``). ``exp`` saturates at the limits of normal float32 numbers, where the
library's goes to infinity or through denormals to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

# exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2)/2, from Cephes' expf.
EXP_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                  1.6666665459e-1, 5.0000001201e-1)  # fmt: skip
LOG2_E = 1.44269504088896341
# ln(2) in two parts: multiples of the first are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
EXP_LOW, EXP_HIGH = -87.3365, 88.3762
# Abramowitz and Stegun, 7.1.26.
ERF_SCALE = 0.3275911
ERF_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def vectorize_calls(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace float32 ``exp``, ``sigmoid``, ``tanh`` and ``erf`` in a ``PrimFunc``."""

    def replace(call: Any) -> Any:
        expand = EXPANSIONS.get(str(getattr(call.op, "name", "")))
        return call if expand is None or str(call.ty) != "float32" else expand(call.args[0])

    body = tvm_ffi.structural_map(func.body, (Call, replace))
    return func if body.same_as(func.body) else func.with_body(body)


def exp(x: Any) -> Any:
    """``exp(x)``: split into a power of two and a remainder within ``ln(2)/2`` of zero."""

    def scaled(clamped: Any) -> Any:
        def remainder(n: Any) -> Any:
            r = clamped - n * _f(LN2_HIGH) - n * _f(LN2_LOW)
            bits = (tirx.Cast("int32", n) + tirx.const(127, "int32")) << tirx.const(23, "int32")
            power = tirx.reinterpret("float32", bits)
            return _let(r, lambda r: power * (_horner(EXP_POLYNOMIAL, r) * r * r + r + _f(1)))

        return _let(tirx.floor(clamped * _f(LOG2_E) + _f(0.5)), remainder)

    return _let(tirx.max(tirx.min(x, _f(EXP_HIGH)), _f(EXP_LOW)), scaled)


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return _f(1) / (_f(1) + exp(_f(0) - x))


def tanh(x: Any) -> Any:
    """``1 - 2 / (1 + exp(2 x))``."""
    return _f(1) - _f(2) / (_f(1) + exp(x * _f(2)))


def erf(x: Any) -> Any:
    """Odd extension of ``1 - t P(t) exp(-x^2)`` with ``t = 1 / (1 + s x)``."""

    def positive(x: Any) -> Any:
        size = tirx.Select(x < _f(0), _f(0) - x, x)
        t = _f(1) / (_f(1) + size * _f(ERF_SCALE))
        value = _let(t, lambda t: _f(1) - _horner(ERF_POLYNOMIAL, t) * t * exp(_f(0) - x * x))
        return _let(value, lambda value: tirx.Select(x < _f(0), _f(0) - value, value))

    return _let(x, positive)


EXPANSIONS: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": exp,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": tanh,
    "tirx.erf": erf,
}


def _f(value: float) -> Any:
    return tirx.const(value, "float32")


def _let(value: Any, body: Callable[[Any], Any]) -> Any:
    var = tirx.Var("t", "float32")
    return tirx.Let(var, value, body(var))


def _horner(coefficients: tuple[float, ...], x: Any) -> Any:
    result = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f(coefficient)
    return result
