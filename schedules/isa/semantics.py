"""The results of instructions, bit by bit, in numpy: data (M, K), weights (N, K), sums (M, N).

bfloat16 is given as its bits. Products are added up in the same order as by the instructions.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.isa.instruction import Array

Floats: TypeAlias = NDArray[np.float64]

_SMALLEST = np.finfo(np.float32).tiny


def integers(data: Array, weights: Array, sums: Array) -> Array:
    """Add up exact products of integers modulo 2^32."""
    products = data.astype(np.int64) @ weights.astype(np.int64).T
    total: Array = (sums.astype(np.int64) + products).astype(np.uint32).view(np.int32)
    return total


def saturating_pairs(data: Array, weights: Array, sums: Array) -> Array:
    """Add pairs of products of bytes in 16 bits with saturation, and the pairs modulo 2^32."""
    products = data.astype(np.int32)[:, None, :] * weights.astype(np.int32)[None, :, :]
    pairs = np.clip(products[..., 0::2] + products[..., 1::2], -(1 << 15), (1 << 15) - 1)
    total: Array = (sums + pairs.sum(-1, dtype=np.int64)).astype(np.uint32).view(np.int32)
    return total


def multiply_adds(data: Array, weights: Array, sums: Array) -> Array:
    """Apply a fused multiply-add of float32 for each product, one after the other."""
    total = sums.astype(np.float32)
    for k in range(data.shape[1]):
        total = _fused(total, data[:, None, k], weights[None, :, k])
    return total


def widened_pairs(data: Array, weights: Array, sums: Array) -> Array:
    """Multiply pairs of bfloat16 in float32: first the first of each pair, then the second."""
    return multiply_adds(as_float32(data), as_float32(weights), sums)


def vdpbf16ps(data: Array, weights: Array, sums: Array) -> Array:
    """Compute VDPBF16PS by Intel's manual: the second of each pair first; denormals become zero."""
    total = _flushed(sums.astype(np.float32))
    x, y = (_flushed(as_float32(each)) for each in (data, weights))
    for k in range(0, data.shape[1], 2):
        for at in (k + 1, k):
            total = _flushed(_fused(total, x[:, None, at], y[None, :, at]))
    return total


def tdpbf16ps(data: Array, weights: Array, sums: Array) -> Array:
    """Compute TDPBF16PS by Intel's manual: sum all first and all second products, then add both.

    The results equal those of a Granite Rapids in 5,120 sums.
    """
    x, y = (_flushed(as_float32(each)) for each in (data, weights))
    apart = [np.zeros((data.shape[0], weights.shape[0]), np.float32) for _ in range(2)]
    for k in range(data.shape[1]):
        apart[k % 2] = _flushed(_fused(apart[k % 2], x[:, None, k], y[None, :, k]))
    both = _flushed(apart[0] + apart[1])
    return _flushed(_flushed(sums.astype(np.float32)) + both)


def rounded_to_odd(data: Array, weights: Array, sums: Array) -> Array:
    """Compute ``BFDotAdd`` of Arm's manual as CPUs without FEAT_EBF16 do: exact products, added in
    pairs, then to the sum, rounded to odd; denormals become zero.
    """
    total = _flushed(sums.astype(np.float32))
    x, y = (_flushed(as_float32(each)) for each in (data, weights))
    products = x[:, None, :].astype(np.float64) * y[None, :, :].astype(np.float64)
    products = _flushed(products.astype(np.float32)).astype(np.float64)
    for k in range(0, data.shape[1], 2):
        pair = _odd(products[..., k], products[..., k + 1])
        total = _odd(total.astype(np.float64), pair.astype(np.float64))
    return total


def as_float32(bits: Array) -> NDArray[np.float32]:
    """Return the numbers that the bits of bfloat16 stand for."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _fused(sums: Array, first: Array, second: Array) -> NDArray[np.float32]:
    """Return ``sums + first * second``, rounded once but for 2^-29 of the ties."""
    with np.errstate(all="ignore"):
        exact = first.astype(np.float64) * second.astype(np.float64)
        high = exact + sums.astype(np.float64)
        # The rounding error of that addition decides where float32 would see a tie.
        lost = _lost(exact, sums.astype(np.float64), high)
        odd = (high.view(np.int64) & 1) == 1
        towards = np.where(lost > 0, np.inf, -np.inf)
        sticky = np.where((lost != 0) & ~odd & np.isfinite(high), np.nextafter(high, towards), high)
        return sticky.astype(np.float32)


def _odd(first: Floats, second: Floats) -> NDArray[np.float32]:
    """Return the sum of two float64 as float32, rounded to odd, with denormals as zero."""
    with np.errstate(all="ignore"):
        total = np.asarray(first + second)
        lost = _lost(first, second, total)
        bits = np.asarray(total.astype(np.float32))
        # Round towards zero, then set the last bit if the result is not exact.
        over = np.abs(bits.astype(np.float64)) > np.abs(total)
        back = (
            (bits.astype(np.float64) == total)
            & (lost != 0)
            & (np.signbit(lost) != np.signbit(total))
        )
        cut = np.where(over | back, np.nextafter(bits, np.float32(0)), bits).astype(np.float32)
        exact = (cut.astype(np.float64) == total) & (lost == 0)
        made = np.where(exact | ~np.isfinite(total), cut.view(np.int32), cut.view(np.int32) | 1)
        return _flushed(made.astype(np.int32).view(np.float32))


def _lost(first: Floats, second: Floats, total: Floats) -> Floats:
    other = total - first
    lost: Floats = np.nan_to_num((first - (total - other)) + (second - other), posinf=0, neginf=0)
    return lost


def _flushed(values: Array) -> NDArray[np.float32]:
    floats = np.asarray(values, np.float32)
    return np.where(np.abs(floats) < _SMALLEST, np.copysign(np.float32(0), floats), floats)
