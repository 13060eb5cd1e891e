"""Winograd's convolution of bfloat16 by products of 16-bit integers that stand for floats.

Data are transformed in float32 and scaled to integers tile by tile. A tile's pixels, over all
channels, lie within its extent, the distance of its largest from its smallest, so transformed data
lie within `_reach` times the extent. Weights have a scale for each point of a tile and each output
channel, so small that no sum overflows 32 bits with any data. Long sums are computed in parts of
`PART` channels, whose results are added in float32: with longer parts the weights would keep less
than 9 bits.

Direct convolution of bfloat16 rounds the weights to 8 bits. This algorithm does not; it errs less
with 64 channels, and about as much with 128 and more.

An infinite or NaN pixel makes the tiles that read it NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd.exact_filter import in_pairs
from neocpu.schedules.convolutions.winograd.filters import Filter, Keep, Vectors, constant
from neocpu.schedules.tir.builder import llvm_definition

TILES: Final = (2, 3, 4)
"""The numbers of outputs of a tile along a dimension; transforms of longer ones need more bits."""
_TAPS: Final = (1, 3)
PART: Final = 128
"""The most input channels whose products are added up as integers, in whole vectors."""
ERROR_FACTOR: Final = 1.5
"""The largest error as a multiple of direct convolution's of bfloat16, which sums differently."""

_LARGEST: Final = (1 << 15) - 1
# The number of steps of transformed data, for sums of this many products, at which data and weights
# lose about the same. A layer's data are less concentrated near their largest than weights.
_BALANCE: Final = 2.0**35.5
_TOO_SMALL: Final = 2.0**-100
_NAME: Final = "neocpu_winograd"
# Adding this number leaves integers of both signs in the lowest bits.
_ROUNDER: Final = 1.5 * 2.0**23


@dataclass(frozen=True, slots=True)
class ScaledFilter(Filter):
    """F(m, r) of stride 1 whose transformed data never exceed the largest pixel in size."""

    def kernel_matrix(self) -> NDArray[np.float64]:
        return Filter.kernel_matrix(self) * self._gains()[:, None]

    def input(self, pixels: Vectors, keep: Keep = T.Bind) -> list[Any]:
        made = Filter.input(self, pixels, keep)
        if self.is_identity:
            return made
        gains = zip(made, self._gains(), strict=True)
        return [each * constant(1 / gain, each) for each, gain in gains]

    def _gains(self) -> NDArray[np.float64]:
        """Return the factors by which each component may exceed the largest pixel."""
        plain = Filter(self.tile, self.taps, self.stride)
        gains: NDArray[np.float64] = np.abs(plain.input_matrix()).sum(axis=1)
        return gains


def tiles(kernel: tuple[int, int], stride: tuple[int, int]) -> tuple[int, ...]:
    """Return the tile sizes for a kernel; none if it has no transform."""
    is_known = all(taps in _TAPS for taps in kernel) and max(kernel) > 1
    return TILES if is_known and stride == (1, 1) else ()


@lru_cache(maxsize=64)
def filters(tile: int, kernel: tuple[int, int]) -> tuple[ScaledFilter, ScaledFilter]:
    down, across = (ScaledFilter(tile if taps > 1 else 1, taps, 1) for taps in kernel)
    return down, across


def steps(tile: int, kernel: tuple[int, int], channels: int) -> float:
    """Return the product of a tile's extent and its scale, which bounds its integers' size."""
    return _largest(channels) / _reach(tile, kernel)


def _largest(channels: int) -> float:
    """Return the largest transformed value of data with so many channels."""
    return min(_LARGEST, math.sqrt(_BALANCE / min(channels, PART)))


@lru_cache(maxsize=64)
def _reach(tile: int, kernel: tuple[int, int]) -> float:
    """Return the largest transformed value, in units of half the tile's extent: that of pixels at
    one end of it where weights are positive, and at the other where they are negative.
    """
    down, across = filters(tile, kernel)
    weights = np.kron(down.input_matrix(), across.input_matrix())
    positive, negative = np.maximum(weights, 0).sum(axis=1), np.maximum(-weights, 0).sum(axis=1)
    return 2 * float(np.maximum(positive, negative).max())


def packed_weights(
    weights: NDArray[np.generic], shape: tuple[int, ...], tile: int, kernel: tuple[int, int]
) -> NDArray[np.int16]:
    """Pack transformed and scaled OIHW weights of float32, ``(points, O / reg_oc, I / 2 + 1, 2
    reg_oc)``, with pairs of input channels side by side and each output channel's float32 scale in
    the last row.
    """
    points, blocks, rows, width = shape
    outs, ins, *_ = weights.shape
    padded, channels = blocks * width // 2, 2 * (rows - 1)
    matrix = np.kron(*(each.kernel_matrix() for each in filters(tile, kernel)))
    made = np.zeros((points, padded, channels), np.int16)
    scales = np.ones((points, padded), np.float32)
    largest = _largest(ins)
    starts = range(0, channels, PART)
    for out in range(outs):
        taps = np.asarray(weights[out], np.float64).reshape(ins, -1)
        values = matrix @ taps.T
        size = np.abs(values)
        # Rounding changes the sums of integers by at most half of each.
        sums = np.stack([size[:, at : at + PART].sum(axis=1) for at in starts]).max(axis=0)
        room = (2**31 - 1) / (largest + 1) - PART / 2
        scale = np.maximum(sums / room, size.max(axis=1) / _LARGEST)
        scale = np.where(scale > 0, scale, 1)
        made[:, out, :ins] = np.rint(values / scale[:, None])
        scales[:, out] = scale / steps(tile, kernel, ins)
    found = np.empty(shape, np.int16)
    found[:, :, :-1] = in_pairs(made, blocks)
    found[:, :, -1] = scales.reshape(points, blocks, width // 2).view(np.int16)
    return found


def functions(width: int) -> Any:
    """Return the frame that defines the functions below for vectors of ``width`` channels."""
    made = (_definition_of_widened, _definition_of_rounded, _definition_of_extent)
    return llvm_definition("".join(definition(width) for definition in made))


_ATTRIBUTES: Final = "alwaysinline nounwind memory(none)"


def _all_of(kind: str, value: str, count: int) -> str:
    return "<" + ", ".join([f"{kind} {value}"] * count) + ">"


def _lanes(start: int, count: int) -> str:
    return "<" + ", ".join(f"i32 {start + lane}" for lane in range(count)) + ">"


def _definition_of_widened(width: int) -> str:
    half = width // 2
    bits, words, both = f"<{width} x i16>", f"<{half} x i32>", f"<{width} x i32>"
    return f"""
define <{width} x float> @{_NAME}_widened_{width}({bits} %bits) {_ATTRIBUTES} {{
  %words = bitcast {bits} %bits to {words}
  %even = shl {words} %words, {_all_of("i32", "16", half)}
  %odd = and {words} %words, {_all_of("i32", "-65536", half)}
  %all = shufflevector {words} %even, {words} %odd, {both} {_lanes(0, width)}
  %result = bitcast {both} %all to <{width} x float>
  ret <{width} x float> %result
}}
"""


def _definition_of_rounded(width: int) -> str:
    half = width // 2
    bits, words, both = f"<{width} x i16>", f"<{half} x i32>", f"<{width} x i32>"
    floats = f"<{width} x float>"
    rounder = _all_of("float", _hexadecimal(_ROUNDER), width)
    return f"""
define {bits} @{_NAME}_rounded_{width}({floats} %values, float %scale) {_ATTRIBUTES} {{
  %one = insertelement {floats} poison, float %scale, i32 0
  %scales = shufflevector {floats} %one, {floats} poison, {both} zeroinitializer
  %scaled = fmul contract {floats} %values, %scales
  %moved = fadd contract {floats} %scaled, {rounder}
  %all = bitcast {floats} %moved to {both}
  %first = shufflevector {both} %all, {both} poison, {words} {_lanes(0, half)}
  %second = shufflevector {both} %all, {both} poison, {words} {_lanes(half, half)}
  %even = and {words} %first, {_all_of("i32", "65535", half)}
  %odd = shl {words} %second, {_all_of("i32", "16", half)}
  %words = or {words} %even, %odd
  %result = bitcast {words} %words to {bits}
  ret {bits} %result
}}
"""


def _definition_of_extent(width: int) -> str:
    bits = f"<{width} x i16>"
    return f"""
declare i16 @llvm.vector.reduce.smax.v{width}i16({bits})
declare i16 @llvm.vector.reduce.umax.v{width}i16({bits})

define float @{_NAME}_extent_{width}({bits} %high, {bits} %low) {_ATTRIBUTES} {{
  %largest = call i16 @llvm.vector.reduce.smax.v{width}i16({bits} %high)
  %smallest = call i16 @llvm.vector.reduce.umax.v{width}i16({bits} %low)
  %is_negative = icmp slt i16 %smallest, 0
  %size = and i16 %smallest, 32767
  %below = select i1 %is_negative, i16 %size, i16 0
  %up = zext i16 %largest to i32
  %down = zext i16 %below to i32
  %up_bits = shl i32 %up, 16
  %down_bits = shl i32 %down, 16
  %up_float = bitcast i32 %up_bits to float
  %down_float = bitcast i32 %down_bits to float
  %up_half = fmul float %up_float, 0.5
  %down_half = fmul float %down_float, 0.5
  %sum = fadd float %up_half, %down_half
  %extent = fadd float %sum, {_hexadecimal(_TOO_SMALL)}
  %nothing = fsub float %extent, %extent
  %result = fadd float %nothing, %extent
  ret float %result
}}
"""


def widened(bits: Any) -> Any:
    """Return a vector of bfloat16's bits as float32: the even lanes, then the odd ones."""
    width = int(bits.ty.dtype.lanes)
    return tirx.call_extern(f"float32x{width}", f"{_NAME}_widened_{width}", bits)


def rounded(values: Any, scale: Any) -> Any:
    """Return the result of `widened` times ``scale`` as integers, in the original order."""
    width = int(values.ty.dtype.lanes)
    return tirx.call_extern(f"int16x{width}", f"{_NAME}_rounded_{width}", values, scale)


def extent(high: Any, low: Any) -> Any:
    """Return half of the extent of a tile's pixels and 0, of their largest bits as int16, ``high``,
    and uint16, ``low``; NaN if that is not finite.
    """
    width = int(high.ty.dtype.lanes)
    return tirx.call_extern("float32", f"{_NAME}_extent_{width}", high, low)


def _hexadecimal(value: float) -> str:
    return f"0x{int(np.float64(value).view(np.uint64)):016X}"
