"""Conversion of float32 weights to bfloat16."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import BITS, NAME, array_dtype, from_bits, round_to_bits

_FARTHEST: Final = 0.7
"""The most that rounding may move a weight, in steps of bfloat16; rounding to nearest moves it by
half a step at most."""
_AT_ONCE: Final = 1 << 20
"""The number of weights rounded at a time."""
_MOST: Final = 64
"""The most weights of an output channel that are rounded the other way. The errors of n weights add
up to about 0.3 sqrt(n) steps."""


def rounded_weights(weights: NDArray[Any]) -> NDArray[Any]:
    """Return float32 weights rounded to bfloat16, half to even."""
    return round_to_bits(weights).view(array_dtype(NAME))


def evenly_rounded(weights: NDArray[Any]) -> NDArray[Any]:
    """Return a convolution's OIHW weights in bfloat16 with rounding errors that cancel.

    Data are mostly positive, so the sum of an output channel's rounding errors shifts all its
    values. Weights that lie nearly between two numbers are therefore rounded the other way,
    cheapest first, as long as this reduces the channel's sum of errors. No data are needed (SQuant,
    Guo et al., ICLR 2022, section 3.3, for numbers with different steps).
    """
    rows = np.ascontiguousarray(weights, np.float32).reshape(len(weights), -1)
    blocks = range(0, len(rows), max(1, _AT_ONCE // rows.shape[1]))
    bits = [_evenly_rounded_rows(rows[at : at + blocks.step]) for at in blocks]
    return np.concatenate(bits).reshape(weights.shape).view(array_dtype(NAME))


def _evenly_rounded_rows(rows: NDArray[np.float32]) -> NDArray[np.uint16]:
    nearest, below = round_to_bits(rows), (rows.view(np.uint32) >> 16).astype(BITS)
    other = np.where(nearest == below, below + BITS.type(1), below)
    with np.errstate(invalid="ignore", over="ignore"):  # for infinities, which are unchanged
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
    count = min(_MOST, costs.shape[1])
    some = np.argpartition(costs, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(costs, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)
