"""How large the sums of few products are that 16 bits are to hold."""

from __future__ import annotations

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
        Output channels first, input channels second.
    products : int
        See `neocpu.schedules.vocabulary.numerics.INT16_SUMS`.
    """
    channels, inputs, *window = weights.shape
    rest = [(0, 0)] * len(window)
    padded = np.pad(weights.astype(np.int32), [(0, 0), (0, -inputs % (2 * products)), *rest])
    halves = padded.reshape(channels, -1, products // 2, 2, 2, *window)
    either = [np.maximum(sign * halves, 0).sum(axis=(2, 4)) for sign in (1, -1)]
    found: NDArray[Any] = np.maximum(*either).reshape(channels, -1).max(axis=1)
    return found
