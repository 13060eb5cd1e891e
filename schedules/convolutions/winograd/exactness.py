"""A proof, from its weights, that Winograd's convolution of 8-bit integers is exact.

The kernel computes multiples of the convolution's sums ``Y`` modulo 2^32. Their factor, 900 = 4 *
225 (`exact_filter`), is removed in two steps. A multiplication by the inverse of 225 modulo 2^32
leaves ``4 Y`` modulo 2^32, and a shift by two bits leaves ``Y``. The result is exact if ``4 Y``
fits a signed integer of 32 bits::

    -2^31 <= 4 Y < 2^31

Data are 0 to 255, so that ``Y`` lies between 255 times the sum of an output channel's negative
weights and 255 times that of its positive ones. No other step can lose anything: transformed data
and weights always fit 16 bits (`exact_filter`), and everything after that is modulo 2^32. The bound
is sharp: data of 0 and 255 reach it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.accuracy import SumBound

LARGEST_DATUM: Final = 255
LARGEST_WEIGHT: Final = 128
LOST_BITS: Final = 2
"""The bits of 32 that are lost to the factors of two in the sums' factor."""
LIMIT: Final = 1 << (31 - LOST_BITS)
"""The bound below which absolute values of sums are exact."""


def bound_of_weights(weights: NDArray[Any]) -> SumBound:
    """Return the bound on sums of OIHW weights of integers with any data."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    positive, negative = np.maximum(flat, 0).sum(axis=1), np.maximum(-flat, 0).sum(axis=1)
    return SumBound(LARGEST_DATUM * int(np.maximum(positive, negative).max()), LIMIT)


def bound_of_any(products: int) -> SumBound:
    """Return the bound on sums of so many products with any data and weights."""
    return SumBound(LARGEST_DATUM * LARGEST_WEIGHT * products, LIMIT)
