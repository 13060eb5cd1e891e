"""The bound on the error of an element of a right answer, which docs/accuracy.md derives.

An element's rounding error is proportional to the sum of its products' magnitudes, which an element
near zero does not show, but its neighbours do. So each error is measured against a scale: the root
mean square of the tensor or of a slice through the element, whichever is smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from neocpu.foundation.arrays import Array

RELATIVE: Final = 1e-3
"""Largest error of an element, as a multiple of its magnitude plus its scale.

It is ten times the norm-wise error that ``--accuracy default`` promises, because some elements err
more than their root mean square. It still finds elements that are off by 1 % of either.
"""

SPREAD: Final = 20.0
"""Additional error of an element where float32 itself errs, as a multiple of float32's errors.

The largest of a million normal errors is five times their root mean square, and two right ways to
compute a network differ by a factor of up to `comparison.FLOAT32_FACTOR`, which is four.
"""

FEWEST: Final = 16
"""Number of elements from which a slice's root mean square represents its sums.

The root mean square of 16 normal numbers is below a tenth of their standard deviation once in 1e12.
"""

PARTIAL: Final = 4.0
"""Largest excess of a partial sum over the sum, as a multiple of the scale.

Partial sums are a random walk, and the scale is the typical distance of its end: one walk in a
thousand goes four times as far.
"""

UNDERFLOW: Final = 2.0**14 * float(np.finfo(np.float32).tiny)
"""Differences that do not count: compiled code takes numbers below float32's smallest normal number
for zero, and a sum may lose one for each of its products.
"""


def tolerances(expected: Array, rounded: Sequence[Array] = ()) -> Array:
    """Return the largest error of each element; 0 where ``expected`` is not finite.

    ``rounded`` has the same values, computed in float32: larger errors are allowed where these err.
    """
    values = finite(expected.astype(np.float64))
    bound = RELATIVE * (np.abs(values) + scales(values)) + UNDERFLOW
    if rounded:
        bound += SPREAD * np.maximum.reduce([_errors_around(run, expected) for run in rounded])
    return np.where(np.isfinite(expected), bound, 0.0)


def _errors_around(run: Array, expected: Array) -> Array:
    """Return the error of a run in each element, or in those around it if that is larger."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(finite(run.astype(np.float64) - expected))
    largest: Array = np.maximum(error, scales(error, np.maximum))
    return largest


def may_overflow(expected: Array) -> Array:
    """Return the elements whose sums ``expected`` may overflow float32 in some order."""
    values = finite(expected.astype(np.float64))
    reach = np.abs(values) + PARTIAL * scales(values)
    return np.asarray(reach > np.finfo(np.float32).max)


def within(actual: Array, expected: Array, tolerance: Array) -> Array:
    """Return which elements are within the tolerance; NaN and infinities must equal their like."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(actual.astype(np.float64) - expected) <= tolerance
    right: Array = near | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return right


def scales(values: Array, choose: np.ufunc = np.minimum) -> Array:
    """Return the root mean square around each element, in a shape that broadcasts.

    It is that of the whole tensor or of a slice of at least `FEWEST` elements that share an index,
    whichever ``choose`` takes. Slices separate channels of pixels from channels of scores, and an
    outlier affects only the elements that share all its slices.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return np.zeros((1,) * values.ndim)
    squares = np.square(values / largest)  # at most 1, so that they cannot overflow
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
