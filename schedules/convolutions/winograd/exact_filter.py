"""F(4, 3) in integers: transforms without fractions, of 16 bits, and what undoes their factor.

The points are 0, 1, -1, 2, -1/2 and infinity. The matrices are scaled so that all elements are
whole, and a tile's results are ``30 * 30 = 900`` times the convolution's sums: the fewest twos that
six points can have, for these are two of each class modulo 2. See `exactness` for what that means::

    B^T = [2 3 -4 -3 2 0; 0 -2 -5 -1 2 0; 0 2 1 -5 2 0; 0 -1 -2 1 2 0; 0 2 -1 -2 1 0; 0 2 3 -4 -3 2]
    G   = [15 0 0; -5 -5 -5; 5 -5 5; 1 2 4; -4 2 -1; 0 0 15]
    A^T = [1 1 1 1 8 0; 0 1 -1 2 -4 0; 0 1 1 4 2 0; 0 1 -1 8 -1 1]

In two dimensions transformed data of 0 to 255 are at most 24990 in size, and weights of -128 to 127
at most 28800: 16 bits hold both.

F(1, 3), F(2, 3) and F(3, 3) take three, four and five of the same points, with the same weights and
the same factor. What whole tiles leave over at the end of a row or column takes that much less.
Of data, 16 bits hold theirs all the more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd.exactness import LOST_BITS, bound_of_weights
from neocpu.schedules.convolutions.winograd.filters import Filter, Keep, Vectors, constant
from neocpu.schedules.tir.wrapping import Wrapping

TILE: Final = 4
"""Outputs of a tile along a dimension."""
KERNEL: Final = (3, 3)
_POINTS: Final = {1: (0, 1, 2), 2: (0, 1, 2, 5), 3: (0, 1, 2, 3, 4), 4: (0, 1, 2, 3, 4, 5)}
_KERNEL_MATRIX: Final = ((15, 0, 0), (-5, -5, -5), (5, -5, 5), (1, 2, 4), (-4, 2, -1), (0, 0, 15))
FACTOR: Final = 30 * 30
"""What a tile's results in two dimensions are multiples by."""
_INVERSE: Final = pow(FACTOR >> LOST_BITS, -1, 1 << 32)


@dataclass(frozen=True, slots=True)
class ExactFilter(Filter):
    """F(tile, 3) of stride 1 and of up to four outputs, with 30 times its results."""

    @property
    def points(self) -> tuple[int, ...]:
        """Which rows of ``G`` it takes, in order; and in that order of its products."""
        return _POINTS[self.tile]

    def kernel_matrix(self) -> NDArray[np.float64]:
        """Return ``G``, of shape ``(span, 3)``."""
        return np.array([_KERNEL_MATRIX[point] for point in self.points], np.float64)

    def kernel(self, taps: Vectors, keep: Keep = T.Bind) -> list[Any]:
        """Return the components of ``G taps`` of a whole tile; ``keep`` names what is between."""
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
        """Return the components of ``B^T pixels``; ``keep`` names intermediate values."""
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
        """Return ``A^T values``, of vectors modulo 2^32; ``keep`` names what is between."""
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
"""Along rows and columns."""


def without_factor(sums: Any) -> Any:
    """Return a vector of `FACTOR` times the convolution's sums, modulo 2^32, as these."""
    bits = T.broadcast(tirx.const(LOST_BITS, "int32"), int(sums.ty.dtype.lanes))
    return tirx.shift_right((Wrapping(sums) * _INVERSE).value, bits)


def transformed_weights(weights: NDArray[Any]) -> NDArray[np.int16]:
    """Return OIHW weights of int8 transformed, of shape ``(points, O, I)``.

    Every sum is a whole number below 2^24, which float32 adds up exactly.
    """
    outs, ins, *_ = weights.shape
    matrix = np.kron(*(each.kernel_matrix() for each in FILTERS)).astype(np.float32)
    taps = weights.reshape(outs * ins, -1).astype(np.float32)
    found: NDArray[np.int16] = (matrix @ taps.T).astype(np.int16).reshape(-1, outs, ins)
    return found


def packed_weights(weights: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int16]:
    """Transform and pack OIHW weights of int8, as ``(points, O / reg_oc, I / 2, 2 reg_oc)``.

    Pairs of input channels lie side by side. What ``shape`` has beyond the weights is zero.
    """
    _, blocks, pairs, width = shape
    return in_pairs(transformed_weights(_padded(weights, blocks * width // 2, 2 * pairs)), blocks)


def packed_taps(weights: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int8]:
    """Pack OIHW weights of int8 as they are, as ``(O / reg_oc, I / 2, taps, 2 reg_oc)``.

    Else as by `packed_weights`.
    """
    blocks, pairs, taps, width = shape
    padded = _padded(weights, blocks * width // 2, 2 * pairs)
    made = in_pairs(padded.reshape(*padded.shape[:2], taps).transpose(2, 0, 1), blocks)
    return np.ascontiguousarray(made.transpose(1, 2, 0, 3))


def _padded(weights: NDArray[Any], outs: int, ins: int) -> NDArray[Any]:
    """Return OIHW weights, whose sums are known to be exact, with channels of zeros behind."""
    assert bound_of_weights(weights).holds, "their sums need a proof"
    o, i, *_ = weights.shape
    return np.pad(weights, ((0, outs - o), (0, ins - i), (0, 0), (0, 0)))


def in_pairs(made: NDArray[Number], blocks: int) -> NDArray[Number]:
    """Return ``(points, O, I)`` weights as ``(points, blocks, I / 2, 2 O / blocks)``.

    Pairs of input channels lie side by side.
    """
    points, outs, ins = made.shape
    split = made.reshape(points, blocks, outs // blocks, ins // 2, 2).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(split).reshape(points, blocks, ins // 2, -1)


def _times(factor: int, value: Any) -> Any:
    return value * constant(factor, value)
