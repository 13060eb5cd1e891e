"""Sine and cosine of float32 that vectorise for all numbers: no branch, and no table in memory.

The fraction of a turn is computed in float64. A large number is ``x = y 2^s`` with an integer
``y``, and whole turns of ``2^s / (2 pi)`` do not count. The remaining factor has three parts. Two
of them are so short that products with the 24 bits of ``y`` are exact, and so are their fractions.
Cancellation therefore only occurs in the last addition, to 1e-16 of a turn.

Values that depend on the number are selected by its bits. With ``Select``, code generation would
take TVM ten times as long, because it analyses conditions wherever their results are used.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np
from tvm import tirx

from neocpu.schedules.tir.vector_terms import Names, horner, number, to_even, whole

SCALES: Final = (
    (0, 42722829, 388440586, 4.038449470223213e-18),
    (27, 231327874, 346550429, 2.5825855998448508e-18),
    (54, 86637607, 184172198, 4.220776518111768e-18),
    (81, 180260777, 350077147, 2.672134687910571e-18),
)
"""``(s, a, b, c)``: ``2^s / (2 pi)`` is ``a 2^-28 + b 2^-57 + c`` plus whole turns, for numbers
below ``2^(s + 50)``. Those above the previous entry's limit are integers times ``2^s``.
"""
BITS: Final = 50

# For |x| <= pi / 4: sin(x) = x + x^3 P(x^2), cos(x) = 1 - x^2 / 2 + x^4 Q(x^2), Cephes' sinf, cosf.
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def sin(x: Any) -> Any:
    """Return ``sin(x)`` within two units in the last place; NaN for infinities."""
    names = Names()
    x = names.give(x)
    quarter, sine, cosine = _in_quarters(names, tirx.abs(x))
    sign = tirx.bitwise_and(_bits(x), whole(-(1 << 31)))
    bits = tirx.bitwise_xor(_either(quarter, sine, cosine), sign)
    return names.around(_negative_of_half(bits, quarter))


def cos(x: Any) -> Any:
    """Return ``cos(x)`` within two units in the last place; NaN for infinities."""
    names = Names()
    quarter, sine, cosine = _in_quarters(names, tirx.abs(x))
    bits = _either(quarter, cosine, sine)
    return names.around(_negative_of_half(bits, quarter + whole(1)))


def _in_quarters(names: Names, size: Any) -> tuple[Any, Any, Any]:
    """Return the quarters of a turn in ``size``, which is not negative, and sine and cosine. The
    number of quarters is an int32 from -2 to 2, and the remaining angle is from -pi / 4 to pi / 4.
    """
    turn = _turn(names, names.give(size))
    rounded = names.give(to_even(turn * _wide(4)))
    angle = (turn - rounded * _wide(0.25)) * _wide(2 * math.pi)
    x = names.give(tirx.Cast("float32", angle))
    square = names.give(x * x)
    sine = horner(SINE, square) * square * x + x
    cosine = horner(COSINE, square) * square * square + (number(1) - number(0.5) * square)
    quarter = names.give(tirx.Cast("int32", tirx.Cast("float32", rounded)))
    return quarter, names.give(sine), names.give(cosine)


def _turn(names: Names, size: Any) -> Any:
    bits = names.give(_bits(size))
    steps = [_steps(scale) for scale in SCALES]
    power, *parts = (whole(step, width) for step, width in zip(steps[0], WIDTHS, strict=True))
    for before, (one, other) in zip(SCALES, itertools.pairwise(steps), strict=False):
        limit = _stored(2.0 ** (before[0] + BITS), 32)
        far = names.give((whole(limit - 1) - bits) >> whole(31))  # all bits set from the limit on
        wide = names.give(tirx.Cast("int64", far))
        changes = (
            tirx.bitwise_and(mask, whole(a ^ b, width))
            for mask, a, b, width in zip((far, wide, wide, wide), one, other, WIDTHS, strict=True)
        )
        power, *parts = (
            tirx.bitwise_xor(old, change)
            for old, change in zip((power, *parts), changes, strict=True)
        )
    first, second, third = (names.give(tirx.reinterpret("float64", part)) for part in parts)
    y = names.give(tirx.Cast("float64", size * tirx.reinterpret("float32", power)))
    high, low = (_fraction(names, y * part) for part in (first, second))
    return _fraction(names, high + (low + y * third))


WIDTHS: Final = (32, 64, 64, 64)
"""The bits of the selected values."""


def _steps(scale: tuple[int, int, int, float]) -> tuple[int, ...]:
    power, first, second, third = scale
    values = (2.0**-power, first * 2.0**-28, second * 2.0**-57, third)
    return tuple(_stored(value, width) for value, width in zip(values, WIDTHS, strict=True))


def _fraction(names: Names, value: Any) -> Any:
    value = names.give(value)
    return names.give(value - to_even(value))


def _either(quarter: Any, even: Any, odd: Any) -> Any:
    is_odd = -tirx.bitwise_and(quarter, whole(1))
    differing = tirx.bitwise_xor(_bits(even), _bits(odd))
    return tirx.bitwise_xor(_bits(even), tirx.bitwise_and(is_odd, differing))


def _negative_of_half(bits: Any, quarter: Any) -> Any:
    sign = tirx.bitwise_and(quarter, whole(2)) << whole(30)
    return tirx.reinterpret("float32", tirx.bitwise_xor(bits, sign))


def _bits(value: Any) -> Any:
    return tirx.reinterpret("int32", value)


def _stored(value: float, width: int) -> int:
    return int(np.array(value, f"float{width}").view(f"int{width}"))


def _wide(value: float) -> Any:
    return tirx.const(value, "float64")
