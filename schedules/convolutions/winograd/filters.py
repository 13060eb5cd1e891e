"""Winograd's minimal filtering F(m, r) of any stride: its matrices and its vector transforms.

Along one dimension, ``m`` outputs of an ``r``-tap filter are ``A^T [(G g) . (B^T d)]``, with the
input pixels ``d`` and the taps ``g``. The number of products is the number of pixels instead of ``m
r``. In two dimensions the transforms nest (Lavin and Gray, CVPR 2016), and a dimension of one tap
has none.

The matrices follow from interpolation points (Toom and Cook): pairs of opposite numbers, infinity,
and zero if the number of points requires it. Opposite points share their even and odd parts, which
halves the additions.

A stride ``s`` splits the filter (polyphase decomposition): every ``s``-th tap meets every ``s``-th
pixel, which is an ``F(m, r / s)`` of stride 1 for each remainder, and their results add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.vocabulary.accuracy import EVERY_TILE
from neocpu.schedules.vocabulary.layout import ceil_div

# Positive points, by the number of finite points. All products of their squares are exact in
# float32. Among the sums of eighths that were tried, these have the least error, or nearly so with
# fewer products: F(4x4, 3x3) errs 2.0 times as much as direct convolution, and 4.5 times with
# Lavin's (1, 2).
POINTS: tuple[tuple[float, ...], ...] = (
    (),
    (),
    (1.0,),
    (1.0,),
    (0.5, 1.5),
    (0.75, 1.5),
    (0.25, 0.875, 1.75),
    (0.5, 1.0, 2.0),
    (0.25, 0.625, 1.25, 2.0),
    (0.375, 0.75, 1.25, 2.5),
    (0.25, 0.625, 0.875, 1.5, 2.5),
    (0.375, 0.75, 1.0, 1.5, 3.0),
)

# The largest norm-wise error along one dimension, as a multiple of direct summation's in float32,
# by taps and stride, then by tile. It was measured with this template's and the direct kernels for
# eight input channels, where direct summation has the fewest terms, plus a tenth. In two dimensions
# the errors about multiply. F(4x4, 3x3), F(5x5) and F(6x6) measure 3.0, 5.3 and 11.6, and with 128
# channels 2.0, 3.7 and 7.9.
ERROR_FACTORS: dict[tuple[int, int], dict[int, float]] = {
    (3, 1): {2: 1.3, 3: 1.9, 4: 2.4, 5: 3.2, 6: 4.7},
    (5, 1): {2: 2.1, 3: 2.8, 4: 3.9},
    (7, 1): {2: 3.6, 3: 5.4, 4: 8.0, 5: 12.7, 6: 18.5},
    (3, 2): {2: 1.3, 3: 1.3, 4: 1.8, 5: 2.1},
    (5, 2): {2: 1.3, 3: 1.4, 4: 1.8},
}
# The bits of a double that remain for a factor of a float32 number.
_EXACT_BITS = 53 - 24
# Tiles with larger errors are not offered: no plan may choose them.
MAX_ERROR_FACTOR = EVERY_TILE.error_factor

Vectors = Sequence[Any]
Keep = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """F(tile, taps) along one dimension, with ``stride`` pixels from one output to the next."""

    tile: int
    taps: int
    stride: int

    @property
    def span(self) -> int:
        """The number of pixels that a tile reads, which is also the number of its products."""
        return (self.tile - 1) * self.stride + self.taps

    @property
    def step(self) -> int:
        """The distance in pixels from one tile to the next."""
        return self.tile * self.stride

    @property
    def is_identity(self) -> bool:
        """Whether nothing is transformed: a tile is one pixel with one product."""
        return self.span == 1

    @property
    def phases(self) -> tuple[tuple[slice, slice], ...]:
        """The pixels of each filter of stride 1, and its products among all products."""
        found, start = [], 0
        for phase in range(min(self.stride, self.taps)):
            count = self.tile - 1 + len(range(phase, self.taps, self.stride))
            pixels = slice(phase, phase + count * self.stride, self.stride)
            found.append((pixels, slice(start, start + count)))
            start += count
        return tuple(found)

    def kernel_matrix(self) -> NDArray[np.float64]:
        """Return ``G``, of shape ``(span, taps)``."""
        matrix = np.zeros((self.span, self.taps))
        for phase, (_, products) in enumerate(self.phases):
            taps = slice(phase, None, self.stride)
            matrix[products, taps] = self._kernel_matrix(matrix[products, taps].shape)
        return matrix

    def _kernel_matrix(self, shape: tuple[int, int]) -> NDArray[np.float64]:
        count, taps = shape
        if taps == 1:
            return np.ones(shape)
        pairs = [sign * point for point in POINTS[count - 1] for sign in (1, -1)]
        points = [0.0] * _has_zero(count) + pairs
        rows = []
        for point in points:
            scale = math.prod(point - other for other in points if other != point)
            rows.append([point**power / scale for power in range(taps)])
        return np.array([*rows, [0.0] * (taps - 1) + [1.0]])

    def input_matrix(self) -> NDArray[np.float64]:
        """Return ``B^T``, of shape ``(span, span)``."""
        return np.array(self.input(list(np.eye(self.span)), _identity))

    def output_matrix(self) -> NDArray[np.float64]:
        """Return ``A^T``, of shape ``(tile, span)``."""
        return np.array(self.output(list(np.eye(self.span)), _identity))

    @property
    def input_additions(self) -> int:
        """The number of additions, with products fused into them."""
        counter = _Additions()
        self.input([counter] * self.span, _identity)
        return counter.total

    @property
    def output_additions(self) -> int:
        counter = _Additions()
        self.output([counter] * self.span, _identity)
        return counter.total

    def input(self, pixels: Vectors, keep: Keep = T.Bind) -> list[Any]:
        """Return the components of ``B^T pixels``; ``keep`` names intermediate values."""
        return [
            value for places, _ in self.phases for value in _input(pixels[places], self.tile, keep)
        ]

    def output(self, values: Vectors, keep: Keep = T.Bind) -> list[Any]:
        """Return the ``tile`` components of ``A^T values``; ``keep`` names intermediate values."""
        parts = [_output(values[products], self.tile, keep) for _, products in self.phases]
        return [keep(_sum(terms)) for terms in zip(*parts, strict=True)]


class _Additions:
    def __init__(self) -> None:
        self.total = 0

    def __add__(self, other: _Additions) -> _Additions:
        self.total += 1
        return self

    __sub__ = __add__

    def __mul__(self, factor: float) -> _Additions:
        return self


@lru_cache(maxsize=256)
def filters(tile: int, kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[Filter, Filter]:
    """Return the filters along rows and columns; a dimension of one tap has one-pixel tiles."""
    down, across = (
        Filter(tile if taps > 1 else 1, taps, step)
        for taps, step in zip(kernel, stride, strict=True)
    )
    return down, across


@lru_cache(maxsize=64)
def weight_matrix(
    tile: int, kernel: tuple[int, int], stride: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the matrix from all taps to a tile's points, ``(points, taps)``, whose elements have
    so few bits that products with float32 are exact in float64.
    """
    down, across = filters(tile, kernel, stride)
    parts, exponents = np.frexp(np.kron(down.kernel_matrix(), across.kernel_matrix()))
    whole = np.round(np.ldexp(parts, _EXACT_BITS))
    found: NDArray[np.float64] = np.ldexp(whole, exponents - _EXACT_BITS)
    return found


def flushed(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as CPUs read them in a run, with zeros for subnormal numbers."""
    small = np.abs(numbers) < np.finfo(numbers.dtype).tiny
    return np.where(small, numbers.dtype.type(0), numbers) if small.any() else numbers


_AT_A_TIME: Final = 1 << 13
"""Pairs of channels transformed at a time: their taps, in float64, stay in L2 for all points."""


def packed_weights(
    weights: NDArray[Any], shape: tuple[int, ...], matrix: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Transform and pack OIHW weights of float32, as ``(points, O / reg_oc, I, reg_oc)``.

    The bits equal those of `weight_kernels`: taps are added up in order, in float64, where products
    with the elements of a `weight_matrix` are exact. Inputs and results too small to be normal
    become zero.
    """
    packed, reg_oc = np.zeros(shape, np.float32), shape[-1]
    step = max(1, _AT_A_TIME // reg_oc)
    for block in range(ceil_div(len(weights), reg_oc)):
        part = flushed(weights[block * reg_oc : (block + 1) * reg_oc])
        for first in range(0, weights.shape[1], step):
            some = part[:, first : first + step].transpose(2, 3, 1, 0)
            taps = some.reshape(-1, *some.shape[2:]).astype(np.float64)
            place = packed[:, block, first : first + taps.shape[1], : len(part)]
            sums, products = np.empty_like(taps[0]), np.empty_like(taps[0])
            for row, point in zip(matrix, place, strict=True):
                sums.fill(0)
                for tap in np.flatnonzero(row):
                    sums += np.multiply(taps[tap], row[tap], out=products)
                point[...] = sums
    return packed


def tiles_of(kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, ...]:
    """Return the tile sizes for a kernel, smallest first; none if it has no transform."""
    if not _filtered(kernel, stride):
        return ()
    every = sorted({tile for factors in ERROR_FACTORS.values() for tile in factors})
    return tuple(t for t in every if error_factor(t, kernel, stride) <= MAX_ERROR_FACTOR)


def error_factor(tile: int, kernel: tuple[int, int], stride: tuple[int, int]) -> float:
    """Return the largest norm-wise error as a multiple of direct float32's; inf if unknown."""
    known = (ERROR_FACTORS.get(pair, {}) for pair in _filtered(kernel, stride))
    return math.prod(factors.get(tile, math.inf) for factors in known)


def _filtered(kernel: tuple[int, int], stride: tuple[int, int]) -> list[tuple[int, int]]:
    return [pair for pair in zip(kernel, stride, strict=True) if pair[0] > 1]


def _input(pixels: Vectors, tile: int, keep: Keep) -> list[Any]:
    """Return ``B^T pixels`` for a filter of stride 1, which has one tap if ``tile`` pixels."""
    count = len(pixels)
    if count == tile:
        return list(pixels)
    points, zero = POINTS[count - 1], _has_zero(count)
    squares = [point * point for point in points]
    every = _polynomial(squares)
    result = [_combine(every, pixels[0::2], keep)] * zero
    for index, point in enumerate(points):
        others = _polynomial(squares[:index] + squares[index + 1 :])
        one = _combine(others, pixels[zero + 1 :: 2], keep)
        other = _combine(others, pixels[zero::2], keep)
        result += [keep(_plus(one, other, point)), keep(_plus(one, other, -point))]
    return [*result, _combine(every, pixels[zero::2], keep)]


def _output(values: Vectors, tile: int, keep: Keep) -> list[Any]:
    """Return ``A^T values`` for a filter of stride 1."""
    count = len(values)
    if count == tile:
        return list(values)
    points, zero = POINTS[count - 1], _has_zero(count)
    pairs = [values[i : i + 2] for i in range(zero, count - 1, 2)]
    sums = [keep(one + other) for one, other in pairs]
    differences = [keep(one - other) for one, other in pairs]
    result = []
    for power in range(tile):
        total = values[0] if zero and power == 0 else None
        for point, term in zip(points, differences if power % 2 else sums, strict=True):
            total = _plus(total, term, point**power)
        result.append(keep(total + values[-1] if power == tile - 1 else total))
    return result


def _has_zero(count: int) -> int:
    """Return whether zero is among the points of ``count`` products; one point is infinity."""
    return int(count % 2 == 0)


def _polynomial(squares: Sequence[float]) -> list[float]:
    """Return the coefficients, lowest first, of the product of ``(y - square)``."""
    coefficients = np.array([1.0])
    for square in squares:
        coefficients = np.convolve(coefficients, [-square, 1.0])
    return [float(c) for c in coefficients]


def _combine(coefficients: Sequence[float], values: Vectors, keep: Keep) -> Any:
    """Return the sum of the values, each times its coefficient; the last coefficient is 1."""
    total = values[len(coefficients) - 1]
    for coefficient, value in zip(coefficients[:-1], values, strict=False):
        total = _plus(total, value, coefficient)
    return keep(total)


def _plus(total: Any, value: Any, factor: float) -> Any:
    """Return ``total + value * factor``, in one instruction where the processor has it.

    Without ``fmuladd``, LLVM would compute a product that one sum adds and another subtracts only
    once, and fuse it with neither.
    """
    scaled = value if abs(factor) == 1.0 else value * constant(abs(factor), value)
    if total is None:
        return scaled
    if factor < 0:
        return total - scaled
    if scaled is value or not isinstance(value, Expr):
        return total + scaled
    operands = (value, constant(factor, value), total)
    return tirx.call_llvm_pure_intrin(value.ty.dtype, "llvm.fmuladd", *operands)


def constant(factor: float, like: Any) -> Any:
    """Return a factor in the type of a TVM vector; for other values, the factor itself."""
    return tirx.const(factor, like.ty.dtype) if isinstance(like, Expr) else factor


def _sum(terms: Sequence[Any]) -> Any:
    total, *rest = terms
    for term in rest:
        total = total + term
    return total


def _identity(value: Any) -> Any:
    return value
