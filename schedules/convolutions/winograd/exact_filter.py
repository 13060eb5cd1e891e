"""F(4, 3) in integers: transforms without fractions in 16 bits, and the inverse of their factor.

The points are 0, 1, -1, 2, -1/2 and infinity. The matrices are scaled so that all elements are
whole, and a tile's results are ``30 * 30 = 900`` times the convolution's sums. Six points cannot
have fewer factors of two, because two of them fall in each class modulo 2::

    B^T = [2 3 -4 -3 2 0; 0 -2 -5 -1 2 0; 0 2 1 -5 2 0; 0 -1 -2 1 2 0; 0 2 -1 -2 1 0; 0 2 3 -4 -3 2]
    G   = [15 0 0; -5 -5 -5; 5 -5 5; 1 2 4; -4 2 -1; 0 0 15]
    A^T = [1 1 1 1 8 0; 0 1 -1 2 -4 0; 0 1 1 4 2 0; 0 1 -1 8 -1 1]

In two dimensions, transformed data of 0 to 255 are at most 24990 in absolute value, and weights of
-128 to 127 at most 28800: 16 bits hold both.

F(1, 3), F(2, 3) and F(3, 3) use three, four and five of the same points, with the same weights and
the same factor. They compute the rest that whole tiles leave at the end of a row or column with
fewer products. Their transformed data are smaller and also fit 16 bits.

The kernel computes multiples of the convolution's sums ``Y`` modulo 2^32. Their factor, 900 = 4 *
225, is removed in two steps. A multiplication by the inverse of 225 modulo 2^32
leaves ``4 Y`` modulo 2^32, and a shift by two bits leaves ``Y``. The result is exact if ``4 Y``
fits a signed integer of 32 bits::

    -2^31 <= 4 Y < 2^31

Data are 0 to 255, so that ``Y`` lies between 255 times the sum of an output channel's negative
weights and 255 times that of its positive ones. No other step can lose anything: transformed data
and weights always fit 16 bits, and everything after that is modulo 2^32. The bound
is sharp: data of 0 and 255 reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd.filters import Filter, Keep, Vectors, constant
from neocpu.schedules.tir.llvm_text import Wrapping
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


TILE: Final = 4
"""The number of outputs of a tile along a dimension."""
KERNEL: Final = (3, 3)
_POINTS: Final = {1: (0, 1, 2), 2: (0, 1, 2, 5), 3: (0, 1, 2, 3, 4), 4: (0, 1, 2, 3, 4, 5)}
_KERNEL_MATRIX: Final = ((15, 0, 0), (-5, -5, -5), (5, -5, 5), (1, 2, 4), (-4, 2, -1), (0, 0, 15))
FACTOR: Final = 30 * 30
"""The factor of a tile's results in two dimensions."""
_INVERSE: Final = pow(FACTOR >> LOST_BITS, -1, 1 << 32)


@dataclass(frozen=True, slots=True)
class ExactFilter(Filter):
    """F(tile, 3) of stride 1 with up to four outputs, whose results have a factor of 30."""

    @property
    def points(self) -> tuple[int, ...]:
        """The rows of ``G`` that it uses, in the order of its products."""
        return _POINTS[self.tile]

    def kernel_matrix(self) -> NDArray[np.float64]:
        return np.array([_KERNEL_MATRIX[point] for point in self.points], np.float64)

    def kernel(self, taps: Vectors, keep: Keep = T.Bind) -> list[Any]:
        """Return the components of ``G taps`` of a whole tile; ``keep`` names intermediates."""
        assert self.tile == TILE, self
        one, two, three = taps
        ends, twice = keep(one + three), keep(two + two)
        made = [
            _times(15, one),
            _times(-5, ends + two),
            _times(5, ends - two),
            one + twice + _times(4, three),
            twice - three - _times(4, one),
            _times(15, three),
        ]
        return [keep(each) for each in made]

    def input(self, pixels: Vectors, keep: Keep = T.Bind) -> list[Any]:
        p = pixels
        if self.tile <= 2:
            first = keep(p[0] - p[2])
            made = [first + first, _times(-3, p[1] + p[2]), _times(3, p[2] - p[1])]
            if self.tile == 2:
                last = keep(p[3] - p[1])
                made.append(last + last)
            return [keep(each) for each in made]
        a, b = keep(p[4] - p[2]), keep(p[3] - p[1])
        a2, b2 = keep(a + a), keep(b + b)
        c = keep(a2 - b2)
        first = keep(p[0] - p[2])
        made = [
            keep(c - b + (first + first)),
            keep(a2 - b - _times(3, p[1] + p[2])),
            keep(c + _times(3, p[2] - p[3])),
            keep(a2 + b),
            keep(a - b2),
        ]
        if self.tile == TILE:
            last = keep(p[5] - p[3])
            made.append(keep((last + last) - (a2 + b2) - a))
        return made

    def output(self, values: Vectors, keep: Keep = T.Bind) -> list[Any]:
        """Return ``A^T values`` for vectors modulo 2^32; ``keep`` names intermediate values."""
        v = [Wrapping(each) if isinstance(each, Expr) else each for each in values]

        def named(value: Any) -> Any:
            return Wrapping(keep(value.value)) if isinstance(value, Wrapping) else keep(value)

        total, difference = named(v[1] + v[2]), named(v[1] - v[2])
        if self.tile <= 2:
            found = [v[0] + total] if self.tile == 1 else [v[0] + total, difference + v[3]]
        else:
            one, other = named(v[3] - v[4] * 2), named(v[3] * 2 + v[4])
            found = [v[0] + total + v[3] + v[4] * 8, difference + one * 2, total + other * 2]
            if self.tile == TILE:
                found.append(difference + (v[3] * 8 - v[4]) + v[5])
        return [keep(each.value if isinstance(each, Wrapping) else each) for each in found]


Number = TypeVar("Number", bound=np.generic)

FILTERS: Final = (ExactFilter(TILE, KERNEL[0], 1), ExactFilter(TILE, KERNEL[1], 1))
"""The filters along rows and columns."""


def without_factor(sums: Any) -> Any:
    """Return the convolution's sums for a vector of `FACTOR` times the sums modulo 2^32."""
    bits = T.broadcast(tirx.const(LOST_BITS, "int32"), int(sums.ty.dtype.lanes))
    return tirx.shift_right((Wrapping(sums) * _INVERSE).value, bits)


def transformed_weights(weights: NDArray[Any]) -> NDArray[np.int16]:
    """Return transformed OIHW int8 weights, ``(points, O, I)``; sums below 2^24 are exact."""
    outs, ins, *_ = weights.shape
    matrix = np.kron(*(each.kernel_matrix() for each in FILTERS)).astype(np.float32)
    taps = weights.reshape(outs * ins, -1).astype(np.float32)
    found: NDArray[np.int16] = (matrix @ taps.T).astype(np.int16).reshape(-1, outs, ins)
    return found


def packed_weights(weights: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int16]:
    """Transform and pack OIHW int8 weights as ``(points, O / reg_oc, I / 2, 2 reg_oc)``, with pairs
    of input channels side by side and zeros up to ``shape``.
    """
    _, blocks, pairs, width = shape
    return in_pairs(transformed_weights(_padded(weights, blocks * width // 2, 2 * pairs)), blocks)


def packed_taps(weights: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int8]:
    """Pack untransformed OIHW int8 weights as ``(O / reg_oc, I / 2, taps, 2 reg_oc)``."""
    blocks, pairs, taps, width = shape
    padded = _padded(weights, blocks * width // 2, 2 * pairs)
    made = in_pairs(padded.reshape(*padded.shape[:2], taps).transpose(2, 0, 1), blocks)
    return np.ascontiguousarray(made.transpose(1, 2, 0, 3))


def _padded(weights: NDArray[Any], outs: int, ins: int) -> NDArray[Any]:
    """Return OIHW weights with channels of zeros appended; their sums are known to be exact."""
    assert bound_of_weights(weights).holds, "their sums need a proof"
    o, i, *_ = weights.shape
    return np.pad(weights, ((0, outs - o), (0, ins - i), (0, 0), (0, 0)))


def in_pairs(made: NDArray[Number], blocks: int) -> NDArray[Number]:
    """Return ``(points, O, I)`` as ``(points, blocks, I / 2, 2 O / blocks)``, pairs together."""
    points, outs, ins = made.shape
    split = made.reshape(points, blocks, outs // blocks, ins // 2, 2).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(split).reshape(points, blocks, ins // 2, -1)


def _times(factor: int, value: Any) -> Any:
    return value * constant(factor, value)
