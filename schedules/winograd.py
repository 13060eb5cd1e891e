"""Winograd's minimal filtering F(m x m, 3 x 3): its matrices and its vector transforms.

An output tile of ``m`` by ``m`` pixels is ``A^T [(G g G^T) . (B^T d B)] A`` with ``d`` the
``m + 2`` by ``m + 2`` pixels it reads and ``g`` the 3 by 3 taps (Lavin and Gray, CVPR 2016). The
matrices follow from interpolation points (Toom-Cook): zero, pairs of opposite numbers, infinity.
Opposite points share their even and their odd part, which halves the additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

TAPS = 3
# Positive points of each tile size. All products of them are exact in float32. Of the pairs tried
# for m = 4, this has the least error: 2.0 times direct convolution's, where Lavin's (1, 2) has 4.5.
POINTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.75, 1.5), 6: (0.5, 1.0, 2.0)}

Vectors = Sequence[Any]


def span_of(tile: int) -> int:
    """Pixels along a tile's side that it reads; their square is the number of products."""
    return tile + TAPS - 1


def kernel_matrix(tile: int) -> NDArray[np.float64]:
    """Return ``G``, of shape ``(m + 2, 3)``."""
    points = _points(tile)
    rows = []
    for point in points:
        scale = np.prod([point - other for other in points if other != point])
        rows.append([point**power / scale for power in range(TAPS)])
    return np.array([*rows, [0.0, 0.0, 1.0]])


def input_matrix(tile: int) -> NDArray[np.float64]:
    """Return ``B^T``, of shape ``(m + 2, m + 2)``."""
    return np.array(input_transform(list(np.eye(span_of(tile))), tile, _identity))


def output_matrix(tile: int) -> NDArray[np.float64]:
    """Return ``A^T``, of shape ``(m, m + 2)``."""
    return np.array(output_transform(list(np.eye(span_of(tile))), tile, _identity))


def input_transform(pixels: Vectors, tile: int, keep: Callable[[Any], Any] = T.Bind) -> list[Any]:
    """Return the ``m + 2`` components of ``B^T pixels``; ``keep`` names intermediate values."""
    points = POINTS[tile]
    squares = [point * point for point in points]
    every = _polynomial(squares)
    result = [_combine(every, pixels[0::2], keep)]
    for index, point in enumerate(points):
        others = _polynomial(squares[:index] + squares[index + 1 :])
        even = _combine(others, pixels[2::2], keep)
        odd = _times(_combine(others, pixels[1::2], keep), point)
        result += [keep(even + odd), keep(even - odd)]
    return [*result, _combine(every, pixels[1::2], keep)]


def output_transform(values: Vectors, tile: int, keep: Callable[[Any], Any] = T.Bind) -> list[Any]:
    """Return the ``m`` components of ``A^T values``."""
    points = POINTS[tile]
    sums = [keep(values[1 + 2 * i] + values[2 + 2 * i]) for i in range(len(points))]
    differences = [keep(values[1 + 2 * i] - values[2 + 2 * i]) for i in range(len(points))]
    result = []
    for power in range(tile):
        terms = differences if power % 2 else sums
        total = values[0] if power == 0 else None
        for point, term in zip(points, terms, strict=True):
            part = _times(term, point**power)
            total = part if total is None else total + part
        result.append(keep(total + values[-1] if power == tile - 1 else total))
    return result


def _points(tile: int) -> list[float]:
    return [0.0, *(sign * point for point in POINTS[tile] for sign in (1, -1))]


def _polynomial(squares: Sequence[float]) -> list[float]:
    """Coefficients, lowest first, of the product of ``(y - square)``."""
    coefficients = np.array([1.0])
    for square in squares:
        coefficients = np.convolve(coefficients, [-square, 1.0])
    return [float(c) for c in coefficients]


def _combine(coefficients: Sequence[float], values: Vectors, keep: Callable[[Any], Any]) -> Any:
    """Sum of the values, each times its coefficient; the last coefficient is 1."""
    total = values[len(coefficients) - 1]
    for coefficient, value in zip(coefficients[:-1], values, strict=False):
        total = total + _times(value, coefficient)
    return keep(total)


def _times(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    if isinstance(value, np.ndarray):
        return value * factor
    return value * tirx.const(factor, value.ty.dtype)


def _identity(value: Any) -> Any:
    return value
