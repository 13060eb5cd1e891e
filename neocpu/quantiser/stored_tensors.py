"""Weights as integers: symmetric, with a scale for each output channel or one for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from neocpu.quantiser.ranges import Array
from neocpu.schedules.convolutions.dot_products.int16_sums import SUM_BOUND, largest_sums

LARGEST: Final = 127
"""Largest magnitude of a stored weight; -128 is unused, because it has no opposite."""

_ROUNDS: Final = 8
"""Attempts to keep the bound on sums: rounded weights may exceed it, and scales then grow."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Integers that stand for weights: ``values * scale``."""

    values: Array  # integers with the output channels first
    scale: Array  # scale of each output channel, or of all

    @property
    def real(self) -> Array:
        found: Array = self.values.astype(np.float32) * _spread(self.scale, self.values.ndim)
        return found


def store(
    weights: Array,
    *,
    per_channel: bool,
    products: int,
    least: Array | float = 0.0,
    depthwise: bool = False,
) -> Stored:
    """Return weights as integers. The ``weights`` have output channels first, input channels
    second. `products` is the number of products of neighbouring input channels by uint8 whose sum
    must fit 16 bits: 2, 4 or 8, see `neocpu.schedules.vocabulary.numerics.INT16_SUMS`; 0 sets no
    bound. The scales of channels that would not fit grow as little as possible. `least` is the
    least scale of each output channel. The bias is stored in that scale too, and a finer one would
    need more than 32 bits for a channel whose weights are tiny beside its bias. `depthwise` says
    whether each output channel reads only one of many channels: no engine adds up its products in
    16 bits.
    """
    largest = np.abs(weights).reshape(len(weights), -1).max(axis=1)
    if not per_channel:
        largest = np.full_like(largest, largest.max())
    scale = np.maximum(np.where(largest > 0, largest / LARGEST, 1.0), least)
    if not per_channel:
        scale = np.full_like(scale, scale.max())
    for _ in range(_ROUNDS):
        values = np.clip(np.rint(weights / _spread(scale, weights.ndim)), -LARGEST, LARGEST)
        if not products or weights.ndim < 2:
            break
        excess = largest_sums(values, products) / SUM_BOUND
        if not depthwise:
            excess = np.maximum(excess, largest_sums(_in_a_row(values), 2) / SUM_BOUND)
        if not per_channel:
            excess = np.full_like(excess, excess.max())
        if (excess <= 1).all():
            break
        scale = scale * np.where(excess > 1, excess * 1.002, 1.0)
    single = scale.astype(np.float32)
    return Stored(values.astype(np.int8), single if per_channel else single[:1])


def _in_a_row(values: Array) -> Array:
    """Return weights as one row for each output channel, place after place of the window.

    ONNX Runtime multiplies pairs of neighbours in this row on CPUs without VNNI. If the number of
    input channels is odd, some pairs belong to two places of the window.
    """
    return np.moveaxis(values, 1, -1).reshape(len(values), -1)


def _spread(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *[1] * (rank - 1))
