"""Exponentials that vectorise: polynomials in place of one library call per element.

LLVM lowers ``exp`` of a vector to a scalar ``expf`` per lane. The replacements below are arithmetic
alone, so they run at full vector width, within a few units in the last place (``exp``), or 1e-6
(``tanh``) and 3e-7 (``erf``) absolute. ``exp`` overflows to infinity where the library's does, and
is zero where that is denormal. All of them propagate NaN.
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
# At the lower limit the power of two is zero. After the largest power the polynomial goes on
# beyond its range, to infinity: e^88.7, the last finite number, is off by 1e-6.
EXP_LOW, LARGEST_POWER = -88.0, 127.0
# 2^x for |x| <= 1/2, from Cephes' exp2f.
POWER_POLYNOMIAL = (1.535336188e-4, 1.339887440e-3, 9.618437357e-3, 5.550332548e-2,
                    2.402264791e-1, 6.931472028e-1, 1.0)  # fmt: skip
# Exponents of the smallest normal float32 and of infinity; 1.5 * 2^23 and the exponents' bias.
POWER_LOW, POWER_HIGH, MAGIC = -126.0, 128.0, 12582912.0 + 127.0
# erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.85, within 1.3e-8, and 3e-7 as it is computed: a fit of
# least squares, reweighted until its largest errors were alike. None of the terms is negative, so
# nothing cancels. At ERF_LIMIT it is above 1, to which it is cut.
ERF_LIMIT = 3.96
ERF_NUMERATOR = (2.09059895e-6, 2.87595876e-4, 3.7622858e-3, 5.27469526e-2, 1.89966403e-1,
                 1.12837906)  # fmt: skip
ERF_DENOMINATOR = (3.86513064e-5, 1.16692258e-3, 1.49598924e-2, 1.13979109e-1, 5.01685375e-1,
                   1.0)  # fmt: skip


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

        power = tirx.floor(clamped * _f(LOG2_E) + _f(0.5))
        return _let(tirx.min(power, _f(LARGEST_POWER)), remainder)

    return _let(tirx.max(x, _f(EXP_LOW)), scaled)


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return _one_over_one_plus_power(x * _f(-LOG2_E))


def tanh(x: Any) -> Any:
    """``1 - 2 / (1 + exp(2 x))``."""
    return _f(1) - _f(2) * _one_over_one_plus_power(x * _f(2 * LOG2_E))


def power_of_two(x: Any) -> Any:
    """``2^x`` of float32 that is not above 127; zero where that is denormal.

    Added to `MAGIC`, ``x`` is rounded to an integer, which lies in the sum's last bits, increased
    by a float's bias: they are the power of two's exponent.
    """
    return _let(tirx.max(x, _f(POWER_LOW - 1)), _power)


def _power(x: Any) -> Any:
    """``2^x`` from `POWER_LOW` - 1 to `POWER_HIGH`."""

    def power(shifted: Any) -> Any:
        bits = tirx.reinterpret("int32", shifted) << tirx.const(23, "int32")
        fraction = _horner(POWER_POLYNOMIAL, x - (shifted - _f(MAGIC)))
        return tirx.reinterpret("float32", bits) * fraction

    return _let(x + _f(MAGIC), power)


def _one_over_one_plus_power(x: Any) -> Any:
    """``1 / (1 + 2^x)``: two thirds of the time that `exp` takes it."""
    within = tirx.min(tirx.max(x, _f(POWER_LOW)), _f(POWER_HIGH))
    return _let(within, lambda x: _f(1) / (_f(1) + _power(x)))


def erf(x: Any) -> Any:
    """``x P(x^2) / Q(x^2)``: in GELU, on a Zen 5, 10.5 cycles of a vector and not 16.

    One polynomial that is as exact has 15 coefficients in a row; the division takes place beside
    the multiply-adds.
    """

    def ratio(x: Any, square: Any) -> Any:
        return x * _horner(ERF_NUMERATOR, square) / _horner(ERF_DENOMINATOR, square)

    def within(x: Any) -> Any:
        value = _let(x * x, lambda square: ratio(x, square))
        return tirx.min(tirx.max(value, _f(-1)), _f(1))

    return _let(tirx.min(tirx.max(x, _f(-ERF_LIMIT)), _f(ERF_LIMIT)), within)


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
