"""How large the sums of few products are that 16 bits are to hold."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SUM_BOUND: Final = 128
"""Of weights: times 255, the largest datum, it is what 16 bits hold of either sign."""


def largest_sums(weights: NDArray[Any], products: int) -> NDArray[Any]:
    """Return, of each output channel, the largest sum in size of so many products' weights.

    Data are 0 or more: the largest sum is that of the weights of one sign.

    Parameters
    ----------
    weights : array of integers
        Output channels first, input channels second; within ±255.
    products : int
        See `neocpu.schedules.vocabulary.numerics.INT16_SUMS`.
    """
    channels, inputs, *window = weights.shape
    rest = [(0, 0)] * len(window)
    padded = np.pad(weights.astype(np.int16), [(0, 0), (0, -inputs % (2 * products)), *rest])
    either = np.maximum(_sums(padded, products), _sums(-padded, products))
    found: NDArray[Any] = either.reshape(channels, -1).max(axis=1)
    return found


def _sums(weights: NDArray[np.int16], products: int) -> NDArray[np.int16]:
    """Return the sums of what is above 0 of every other pair.

    Whole slices are added: numpy's own sums along short axes take several times as long.
    """
    channels, _, *window = weights.shape
    above = np.maximum(weights, 0).reshape(channels, -1, products // 2, 2, 2, *window)
    return reduce(
        np.add, (above[:, :, group, :, k] for group in range(products // 2) for k in range(2))
    )
