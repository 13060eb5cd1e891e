"""Integers that follow from others by a factor, a sum and a quotient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from neocpu.schedules.vocabulary.layout import ceil_div

Values: TypeAlias = tuple[int, ...]

# The factors before a division, and the most divisors, that are tried.
FACTORS: Final = (1, 2, 3, 4)
MOST_DIVISORS: Final = 512


def line(base: Values, values: Values) -> tuple[int, int] | None:
    """Return ``factor, added`` with ``values = factor * base + added``; None if there are none."""
    own = base[: len(values)]
    one, other = own[0], next((each for each in own if each != own[0]), own[0])
    if one == other:
        return None
    factor, rest = divmod(values[own.index(other)] - values[0], other - one)
    if rest or factor < 1:
        return None
    added = values[0] - factor * one
    fits = all(v == factor * b + added for v, b in zip(values, own, strict=True))
    return (factor, added) if fits else None


def quotient(base: Values, values: Values) -> tuple[int, int, int] | None:
    """Return ``factor, added, divisor`` with ``values = (factor * base + added) // divisor``.

    Rounding down, or up, is taken before other roundings, which have to follow from the values.
    None also if several fit, and differ for the bases that ``base`` has after those of the values.
    """
    pairs = list(zip(base, values, strict=False))
    for factor in FACTORS:
        fits = []
        for divisor in _divisors(pairs, factor):
            if math.gcd(factor, divisor) > 1:
                continue
            whole = {value * divisor - factor * part for part, value in pairs}
            if len(whole) == 1:  # sizes are in steps, so that nothing is rounded
                return factor, whole.pop(), divisor
            least = max(whole)
            most = min((value + 1) * divisor - 1 - factor * part for part, value in pairs)
            sums = [added for added in (0, divisor - 1) if least <= added <= most]
            if not sums and least == most:
                sums = [least]
            fits += [(factor, added, divisor) for added in sums]
        if fits:
            found = {tuple((f * part + added) // d for part in base) for f, added, d in fits}
            return fits[0] if len(found) == 1 else None
    return None


def _divisors(pairs: Sequence[tuple[int, int]], factor: int) -> range:
    """Return the divisors of ``factor * base`` that may give the values, whatever is added."""
    if min(value for _, value in pairs) < 1:
        return range(0)
    least = max(factor * base // (value + 1) for base, value in pairs)
    above = [ceil_div(factor * base, value - 1) for base, value in pairs if value > 1]
    most = min(above, default=least + MOST_DIVISORS)
    return range(max(2, least), min(most, least + MOST_DIVISORS) + 1)
