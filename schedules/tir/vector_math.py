"""Functions of float32 that vectorise: polynomials instead of a library call per element.

LLVM lowers ``exp`` of a vector to a scalar ``expf`` per lane. The replacements below consist of
arithmetic, so they run at full vector width. They are accurate to a few units in the last place, or
to 1e-6 (``tanh``) and 3e-7 (``erf``) absolute. ``exp`` overflows to infinity where the library's
does, and is zero below 2^-125.5. All of them propagate NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from neocpu.schedules.tir.vector_circular import cos, sin
from neocpu.schedules.tir.vector_terms import Names, horner, let, number, to_even, whole

# exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2)/2, within 3.1e-9: a least-squares fit, reweighted until
# its largest errors were alike.
EXP_POLYNOMIAL = (1.381446822e-3, 8.368780472e-3, 4.166839419e-2, 1.666652011e-1, 4.999999341e-1)
LOG2_E = 1.44269504088896341
# ln(2) in two parts; multiples of the first are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# The limits below which half the power of two is zero, and above which all exceeds float32.
EXP_LOW, EXP_HIGH = -87.67, 88.7229
# 2^x for |x| <= 1/2, from Cephes' exp2f.
POWER_POLYNOMIAL = (1.535336188e-4, 1.339887440e-3, 9.618437357e-3, 5.550332548e-2,
                    2.402264791e-1, 6.931472028e-1, 1.0)  # fmt: skip
# Exponents of the smallest normal float32 and of infinity; 1.5 * 2^23 and the exponents' bias.
POWER_LOW, POWER_HIGH, MAGIC = -126.0, 128.0, 12582912.0 + 127.0
# erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.85, within 1.3e-8 exactly and 3e-7 as computed: a
# least-squares fit, reweighted until its largest errors were alike. No term is negative, so nothing
# cancels. At ERF_LIMIT it exceeds 1, to which it is clamped.
ERF_LIMIT = 3.96
ERF_NUMERATOR = (2.09059895e-6, 2.87595876e-4, 3.7622858e-3, 5.27469526e-2, 1.89966403e-1,
                 1.12837906)  # fmt: skip
ERF_DENOMINATOR = (3.86513064e-5, 1.16692258e-3, 1.49598924e-2, 1.13979109e-1, 5.01685375e-1,
                   1.0)  # fmt: skip

# log(1 + f) = f - f^2 / 2 + f^3 P(f) from sqrt(1/2) to sqrt(2), from Cephes' logf.
LOG_POLYNOMIAL = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                  1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                  3.3333331174e-1)  # fmt: skip
# The bits of sqrt(1/2), of the least normal float32, of the mantissa, and of all but the sign.
ROOT_BITS, NORMAL_BITS, FRACTION_BITS, SIZE_BITS = 0x3F3504F3, 0x800000, 0x7FFFFF, 0x7FFFFFFF

# arctan(x) = x + x^3 P(x^2) for |x| <= tan(pi/8), and arcsin for |x| <= 1/2: Cephes' atanf, asinf.
PI, TAN_PI_8, TAN_3_PI_8 = 3.14159265358979324, 0.4142135623730950, 2.414213562373095
ATAN_POLYNOMIAL = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
ASIN_POLYNOMIAL = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2,
                   1.6666752422e-1)  # fmt: skip


def vectorize_calls(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace the float32 functions of `EXPANSIONS` in a ``PrimFunc``."""

    def replace(call: Any) -> Any:
        expand = EXPANSIONS.get(str(getattr(call.op, "name", "")))
        return call if expand is None or str(call.ty) != "float32" else expand(call.args[0])

    body = tvm_ffi.structural_map(func.body, (Call, replace))
    return func if body.same_as(func.body) else func.with_body(body)


def exp(x: Any) -> Any:
    """Return ``exp(x)`` as a power of two times that of a remainder within ``ln(2)/2`` of zero. The
    power is computed like `power_of_two`, at half its size, because the largest exceeds float32.
    """

    def scaled(x: Any) -> Any:
        def power(shifted: Any) -> Any:
            n = shifted - number(MAGIC - 1)
            half = tirx.reinterpret("int32", shifted) << whole(23)
            r = x - n * number(LN2_HIGH) - n * number(LN2_LOW)
            twice = tuple(2 * each for each in (*EXP_POLYNOMIAL, 1, 1))
            return tirx.reinterpret("float32", half) * let(r, lambda r: horner(twice, r))

        return let(x * number(LOG2_E) + number(MAGIC - 1), power)

    return let(tirx.min(tirx.max(x, number(EXP_LOW)), number(EXP_HIGH)), scaled)


def log(x: Any) -> Any:
    """Return ``log(x)``: that of the exponent plus that of the mantissa, sqrt(1/2) to sqrt(2). A
    denormal number is its bits times 2^-149, whether or not the processor treats it as zero.
    """
    names = Names()
    x = names.give(x)
    bits = names.give(tirx.reinterpret("int32", x))
    is_small = bits < whole(NORMAL_BITS)
    scaled = tirx.Select(is_small, tirx.reinterpret("int32", tirx.Cast("float32", bits)), bits)
    shifted = names.give(scaled - whole(ROOT_BITS))
    lost = tirx.Select(is_small, number(-149), number(0))
    power = names.give(tirx.Cast("float32", shifted >> whole(23)) + lost)
    mantissa = tirx.bitwise_and(shifted, whole(FRACTION_BITS)) + whole(ROOT_BITS)
    f = names.give(tirx.reinterpret("float32", mantissa) - number(1))
    square = names.give(f * f)
    rest = horner(LOG_POLYNOMIAL, f) * f * square + power * number(LN2_LOW)
    finite = rest - number(0.5) * square + f + power * number(LN2_HIGH)
    is_zero = tirx.bitwise_and(bits, whole(SIZE_BITS)) == whole(0)
    other = tirx.Select(is_zero, number(-math.inf), number(math.nan))
    value = tirx.Select(bits > whole(0), finite, other)
    return names.around(tirx.Select(x < number(math.inf), value, x))


def sigmoid(x: Any) -> Any:
    return _one_over_one_plus_power(x * number(-LOG2_E))


def tanh(x: Any) -> Any:
    """Return ``1 - 2 / (1 + exp(2 x))``."""
    return number(1) - number(2) * _one_over_one_plus_power(x * number(2 * LOG2_E))


def power_of_two(x: Any) -> Any:
    """Return ``2^x`` for float32 up to 127, with zero for denormal results: adding `MAGIC` rounds
    ``x`` to an integer in the last bits, which plus a float's bias are the exponent.
    """
    return let(tirx.max(x, number(POWER_LOW - 1)), _power)


def _power(x: Any) -> Any:
    def power(shifted: Any) -> Any:
        bits = tirx.reinterpret("int32", shifted) << whole(23)
        fraction = horner(POWER_POLYNOMIAL, x - (shifted - number(MAGIC)))
        return tirx.reinterpret("float32", bits) * fraction

    return let(x + number(MAGIC), power)


def _one_over_one_plus_power(x: Any) -> Any:
    """Return ``1 / (1 + 2^x)``, in two thirds of the time that `exp` needs for it."""
    within = tirx.min(tirx.max(x, number(POWER_LOW)), number(POWER_HIGH))
    return let(within, lambda x: number(1) / (number(1) + _power(x)))


def erf(x: Any) -> Any:
    """Return erf as ``x P(x^2) / Q(x^2)``.

    GELU on a Zen 5 takes 10.5 cycles a vector, not 16 as with one chain of 15 coefficients: the
    division overlaps the multiply-adds.
    """

    def ratio(x: Any, square: Any) -> Any:
        return x * horner(ERF_NUMERATOR, square) / horner(ERF_DENOMINATOR, square)

    def within(x: Any) -> Any:
        value = let(x * x, lambda square: ratio(x, square))
        return tirx.min(tirx.max(value, number(-1)), number(1))

    return let(tirx.min(tirx.max(x, number(-ERF_LIMIT)), number(ERF_LIMIT)), within)


def atan(x: Any) -> Any:
    """Return ``arctan``, with ``|x|`` reduced by (|x| - 1) / (|x| + 1) or -1 / |x|."""

    def of(size: Any) -> Any:
        far, near = size > number(TAN_3_PI_8), size > number(TAN_PI_8)
        top = tirx.Select(far, number(-1), tirx.Select(near, size - number(1), size))
        bottom = tirx.Select(far, size, tirx.Select(near, size + number(1), number(1)))
        angle = tirx.Select(far, number(PI / 2), tirx.Select(near, number(PI / 4), number(0)))

        def sum_of(rest: Any) -> Any:
            square = rest * rest
            return angle + (horner(ATAN_POLYNOMIAL, square) * square * rest + rest)

        return let(top / bottom, sum_of)

    return let(x, lambda x: _with_sign(let(tirx.abs(x), of), x))


def asin(x: Any) -> Any:
    """Return ``arcsin``, above 1/2 from that of the half angle; NaN beyond 1."""

    def of(size: Any) -> Any:
        def whole(angle: Any) -> Any:
            return tirx.Select(size > number(0.5), number(PI / 2) - number(2) * angle, angle)

        return let(_asin_near(size), whole)

    return let(x, lambda x: _with_sign(let(tirx.abs(x), of), x))


def acos(x: Any) -> Any:
    """Return ``arccos``, above 1/2 as twice the half angle; NaN beyond 1."""

    def of(size: Any, x: Any) -> Any:
        def choose(angle: Any) -> Any:
            double = number(2) * angle
            far = tirx.Select(x > number(0), double, number(PI) - double)
            near = number(PI / 2) - _with_sign(angle, x)
            return tirx.Select(size > number(0.5), far, near)

        return let(_asin_near(size), choose)

    return let(x, lambda x: let(tirx.abs(x), lambda size: of(size, x)))


def _asin_near(size: Any) -> Any:
    """Return ``arcsin(s)`` up to 1/2; above that, of ``sqrt((1 - s) / 2)``."""
    far = size > number(0.5)
    square = tirx.Select(far, (number(1) - size) * number(0.5), size * size)

    def of(square: Any) -> Any:
        root = tirx.Select(far, tirx.sqrt(square), size)
        return let(root, lambda r: horner(ASIN_POLYNOMIAL, square) * square * r + r)

    return let(square, of)


def _with_sign(value: Any, x: Any) -> Any:
    bits = tirx.bitwise_and(tirx.reinterpret("int32", x), whole(-(1 << 31)))
    return tirx.reinterpret("float32", tirx.bitwise_or(tirx.reinterpret("int32", value), bits))


EXPANSIONS: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": exp,
    "tirx.log": log,
    "tirx.sin": sin,
    "tirx.cos": cos,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": tanh,
    "tirx.erf": erf,
    "tirx.nearbyint": to_even,
    "tirx.atan": atan,
    "tirx.asin": asin,
    "tirx.acos": acos,
}
