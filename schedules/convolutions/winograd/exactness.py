"""When Winograd's convolution of 8-bit integers is exact: the proof, from its weights.

What is added up are multiples of the convolution's sums ``Y``, of which 32 bits keep the remainder
by 2^32. Their factor, 900 = 4 * 225 (`exact_filter`), is undone in two steps: a multiplication by
the inverse of 225 modulo 2^32, which leaves ``4 Y`` modulo 2^32, and a shift by two bits. That is
``Y`` exactly where ``4 Y`` fits a signed integer of 32 bits::

    -2^31 <= 4 Y < 2^31

Data are 0 to 255, so that ``Y`` lies between 255 times the sum of an output channel's negative
weights and 255 times that of its positive ones. No other step can lose anything: transformed data
and weights fit 16 bits, whatever they are of (`exact_filter`), and all that follows is modulo 2^32.

The bound is sharp: data of 0 and 255 reach it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.accuracy import SumBound

LARGEST_DATUM: Final = 255
LARGEST_WEIGHT: Final = 128
LOST_BITS: Final = 2
"""Of 32, by what the sums' factor has of twos."""
LIMIT: Final = 1 << (31 - LOST_BITS)
"""What sums in size must be below."""


def bound_of_weights(weights: NDArray[Any]) -> SumBound:
    """Return what sums of OIHW weights of integers are within, whatever the data."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    positive, negative = np.maximum(flat, 0).sum(axis=1), np.maximum(-flat, 0).sum(axis=1)
    return SumBound(LARGEST_DATUM * int(np.maximum(positive, negative).max()), LIMIT)


def bound_of_any(products: int) -> SumBound:
    """Return what sums of so many products are within, whatever the data and the weights."""
    return SumBound(LARGEST_DATUM * LARGEST_WEIGHT * products, LIMIT)
