"""The size of sums of few products that have to fit 16 bits."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SUM_BOUND: Final = 128
"""The largest sum of weights whose products with 255, the largest datum, fit 16 bits of either
sign."""


def largest_sums(weights: NDArray[Any], products: int) -> NDArray[Any]:
    """Return, for each output channel, the largest absolute sum of weights of so many products.

    Data are not negative, so the largest sum has weights of one sign only. Weights lie within ±255,
    output channels first, input channels second; ``products`` is one of `numerics.INT16_SUMS`.
    """
    channels, inputs, *window = weights.shape
    rest = [(0, 0)] * len(window)
    padded = np.pad(weights.astype(np.int16), [(0, 0), (0, -inputs % (2 * products)), *rest])
    either = np.maximum(_sums(padded, products), _sums(-padded, products))
    found: NDArray[Any] = either.reshape(channels, -1).max(axis=1)
    return found


def _sums(weights: NDArray[np.int16], products: int) -> NDArray[np.int16]:
    """Return the sums of every other pair's positive weights, slice by slice, which is faster."""
    channels, _, *window = weights.shape
    above = np.maximum(weights, 0).reshape(channels, -1, products // 2, 2, 2, *window)
    return reduce(
        np.add, (above[:, :, group, :, k] for group in range(products // 2) for k in range(2))
    )
