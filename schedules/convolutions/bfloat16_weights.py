"""Weights of float32 in bfloat16."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import BITS, NAME, array_dtype, from_bits, round_to_bits

_FARTHEST: Final = 0.7
"""How far a weight may move, in steps of bfloat16; to the nearest is half a step at most."""
_AT_ONCE: Final = 1 << 20
"""Weights that are rounded at a time."""
_MOST: Final = 64
"""Weights of an output channel that are moved. Of n, errors add up to about 0.3 sqrt(n) steps."""


def rounded_weights(weights: NDArray[Any]) -> NDArray[Any]:
    """Return float32 weights rounded to bfloat16, half to even."""
    return round_to_bits(weights).view(array_dtype(NAME))


def evenly_rounded(weights: NDArray[Any]) -> NDArray[Any]:
    """Return a convolution's weights, OIHW, in bfloat16 such that errors cancel.

    Data are mostly positive: what the weights of an output channel err together moves all of its
    values. So those that lie nearly between two numbers are rounded the other way, cheapest first,
    as long as that makes the channel's sum of errors smaller. It needs no data (SQuant, Guo et al.,
    ICLR 2022, section 3.3, for numbers whose steps differ).
    """
    rows = np.ascontiguousarray(weights, np.float32).reshape(len(weights), -1)
    blocks = range(0, len(rows), max(1, _AT_ONCE // rows.shape[1]))
    bits = [_evenly_rounded_rows(rows[at : at + blocks.step]) for at in blocks]
    return np.concatenate(bits).reshape(weights.shape).view(array_dtype(NAME))


def _evenly_rounded_rows(rows: NDArray[np.float32]) -> NDArray[np.uint16]:
    nearest, below = round_to_bits(rows), (rows.view(np.uint32) >> 16).astype(BITS)
    other = np.where(nearest == below, below + BITS.type(1), below)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities, which stay as they are
        error = from_bits(nearest) - rows
        moved = from_bits(other) - rows
        steps = moved - error
        total = error.sum(axis=1, keepdims=True, dtype=np.float64)
        distance = np.abs(moved) / np.maximum(np.abs(steps), np.finfo(np.float32).tiny)
        helps = (error * total > 0) & (distance < _FARTHEST)
        order = _smallest(np.where(helps, distance, np.inf))
        taken = np.take_along_axis(np.where(helps, steps, 0), order, axis=1)
        after = total + np.cumsum(taken, axis=1, dtype=np.float64)
    better = np.logical_and.accumulate(np.abs(after) < np.abs(after - taken), axis=1)
    flips = np.zeros(rows.shape, bool)
    np.put_along_axis(flips, order, better, axis=1)
    found: NDArray[np.uint16] = np.where(flips, other, nearest)
    return found


def _smallest(costs: NDArray[Any]) -> NDArray[Any]:
    """Return where in each row its smallest elements are, in ascending order."""
    count = min(_MOST, costs.shape[1])
    some = np.argpartition(costs, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(costs, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)
