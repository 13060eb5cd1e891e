"""How far an element of a right answer may be from the reference: docs/accuracy.md derives it.

An element is a sum of products, and errs by rounding in proportion to the sum of their magnitudes,
of which the elements beside it tell and it alone does not: one near zero is a difference of large
numbers. So each is measured against a scale: the root mean square of the tensor or of a slice
through it, whichever is smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array

RELATIVE: Final = 1e-3
"""What an element may err, as a multiple of its magnitude plus its scale.

Ten times the norm-wise error that ``--accuracy default`` promises, for some elements err more than
their root mean square; and so little that one off by 1 % of either is found.
"""

SPREAD: Final = 20.0
"""What an element may err besides where float32 itself errs, as a multiple of its errors there.

The largest of a million normal errors is five times their root mean square, and two right ways to
compute a network differ by up to `verdict.FLOAT32_FACTOR`, which is four.
"""

FEWEST: Final = 16
"""Elements from which a slice's root mean square stands for its sums.

Of 16 normal numbers it is below a tenth of their standard deviation once in 1e12.
"""

PARTIAL: Final = 4.0
"""How far parts of a sum go beyond it, as a multiple of the scale.

They are a walk at random whose end the scale tells: one in a thousand goes four times as far.
"""

UNDERFLOW: Final = 2.0**14 * float(np.finfo(np.float32).tiny)
"""Differences that are none: compiled code takes numbers below float32's smallest normal one for
zero, and a sum may lose as many as it has products.
"""


def tolerances(expected: Array, rounded: Sequence[Array] = ()) -> Array:
    """Return how far from ``expected`` each element may be; 0 where that is not finite.

    Parameters
    ----------
    expected : array
        Floating point.
    rounded : sequence of array
        The same, computed in float32: where that errs, more may be.
    """
    values = finite(expected.astype(np.float64))
    bound = RELATIVE * (np.abs(values) + scales(values)) + UNDERFLOW
    if rounded:
        bound += SPREAD * np.maximum.reduce([_errors_around(run, expected) for run in rounded])
    return np.where(np.isfinite(expected), bound, 0.0)


def _errors_around(run: Array, expected: Array) -> Array:
    """Return what a run errs in each element, or in those around it if that is more."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(finite(run.astype(np.float64) - expected))
    largest: Array = np.maximum(error, scales(error, np.maximum))
    return largest


def may_overflow(expected: Array) -> Array:
    """Return where float32 may lose a sum to infinity, in one order of its products if in no other.

    Parameters
    ----------
    expected : array
        What the sums are without overflow.
    """
    values = finite(expected.astype(np.float64))
    reach = np.abs(values) + PARTIAL * scales(values)
    return np.asarray(reach > np.finfo(np.float32).max)


def within(actual: Array, expected: Array, tolerance: Array) -> Array:
    """Return which elements differ by no more; NaN meets NaN, an infinity the same infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(actual.astype(np.float64) - expected) <= tolerance
    right: Array = near | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return right


def scales(values: Array, choose: np.ufunc = np.minimum) -> Array:
    """Return the root mean square around each element, in a shape that broadcasts.

    Of the whole tensor, or of a slice (all elements that share one of its indices) of `FEWEST`
    elements or more, whichever ``choose`` takes. A slice tells channels of pixels from channels of
    scores, and keeps an outlier to those that share all its slices.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return np.zeros((1,) * values.ndim)
    squares = np.square(values / largest)  # which cannot overflow
    means = squares.mean(keepdims=True)
    for axis, extent in enumerate(values.shape):
        if extent > 1 and values.size // extent >= FEWEST:
            others = tuple(other for other in range(values.ndim) if other != axis)
            means = choose(means, squares.mean(axis=others, keepdims=True))
    found: Array = largest * np.sqrt(means)
    return found


def finite(values: Array) -> Array:
    """Return the values, with zero in place of infinities and NaN."""
    return np.where(np.isfinite(values), values, 0.0)
