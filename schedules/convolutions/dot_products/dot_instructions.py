"""The instructions of a step of products: one for each vector of sums, or a sequence on x86.

Without an instruction for four products, VPMADDUBSW multiplies unsigned bytes by signed ones and
adds neighbours in 16 bits, and VPMADDWD does so with 16-bit integers in 32 bits. The former
saturates, so weights that may be too large for it are widened, even and odd channels separately::

    small:   sum += maddwd(ones, maddubsw(data, weights))
    several: sum += maddwd(ones, maddubsw(data, weights) + maddubsw(more data, more weights) …)
    any:     sum += maddwd(even data, even weights) + maddwd(odd data, odd weights)

An ARM CPU without an instruction for unsigned data and signed weights (USDOT) has one for signed
data. Data are reduced by 128 for it, and sums begin with the products that this takes away::

    sum = 128 * (all weights); sum += sdot(data - 128, weights) …

Two products of bfloat16 take one instruction, or two multiply-adds after conversion to float32. Two
products of 16-bit integers are added modulo 2^32 (`tir/llvm_text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.tir.bfloat16 import BITS, add_dot, halves
from neocpu.schedules.tir.llvm_text import Wrapping
from neocpu.schedules.vocabulary.dot_unit import DotUnit

Operand: TypeAlias = tuple[Any, ...]  # of a step, in registers: a pixel's, or a vector of weights
# Intrinsics by the bytes of a vector.
_MADDUBSW = {32: "llvm.x86.avx2.pmadd.ub.sw", 64: "llvm.x86.avx512.pmaddubs.w.512"}
_MADDWD = {32: "llvm.x86.avx2.pmadd.wd", 64: "llvm.x86.avx512.pmaddw.d.512"}


def load_data(words: Sequence[Any], dtype: str, unit: DotUnit) -> Operand:
    """Bind a pixel's channels of type ``dtype``, given as an int32 word for each group of the step;
    int8 ones had `DotUnit.offset` subtracted.
    """
    spread = [T.broadcast(word, unit.lanes) for word in words]
    if dtype == BFLOAT16:
        return _pairs(spread, unit)
    if unit.offset and dtype == "uint8":
        # This flips each byte's highest bit; LLVM does it for the whole vector with these lanes.
        signs = _splat(-0x7F7F7F80, "int32", unit.lanes)
        spread, dtype = [tirx.bitwise_xor(each, signs) for each in spread], "int8"
    if not _widens(unit):
        return tuple(T.Bind(tirx.reinterpret(f"{dtype}x{_bytes(unit)}", each)) for each in spread)
    (word,) = (T.Bind(tirx.reinterpret(f"uint32x{unit.lanes}", each)) for each in spread)
    low = T.broadcast(tirx.const(0x00FF00FF, "uint32"), unit.lanes)
    odd = tirx.bitwise_and(tirx.shift_right(word, _splat(8, "uint32", unit.lanes)), low)
    halves = (tirx.bitwise_and(word, low), odd)
    return tuple(T.Bind(tirx.reinterpret(f"int16x{2 * unit.lanes}", half)) for half in halves)


def load_weights(vectors: Sequence[Any], unit: DotUnit) -> Operand:
    """Bind a vector of weights to a variable for each group of the step."""
    if str(vectors[0].ty.dtype).startswith(BITS):
        return _pairs([tirx.reinterpret(f"int32x{unit.lanes}", each) for each in vectors], unit)
    if not _widens(unit):
        return tuple(T.Bind(vector) for vector in vectors)
    (vector,) = vectors
    kind = f"int16x{2 * unit.lanes}"
    pairs, eight = T.Bind(tirx.reinterpret(kind, vector)), _splat(8, "int16", 2 * unit.lanes)
    even = tirx.shift_right(tirx.shift_left(pairs, eight), eight)
    return T.Bind(even), T.Bind(tirx.shift_right(pairs, eight))


def missing_products(sums: Any, weights: Operand, unit: DotUnit) -> Any:
    """Return ``sums`` less the weights times -`DotUnit.offset`, because int8 does not reach 128."""
    (taps,) = weights
    data = _splat(-unit.offset, "int8", _bytes(unit))
    zero = _splat(0, sums.ty.dtype.with_lanes(1), unit.lanes)
    return sums - tirx.call_llvm_pure_intrin(sums.ty.dtype, unit.intrinsic, zero, taps, data)


def add_products(sums: Any, data: Operand, weights: Operand, unit: DotUnit) -> Any:
    """Return the vector ``sums`` plus the products of `load_data` and `load_weights`."""
    if unit.widens_floats:
        for pixels, taps in zip(data, weights, strict=True):
            sums = sums + pixels * taps
        return sums
    if not unit.adds:
        (pixels,), (taps,) = data, weights
        products = tirx.call_llvm_pure_intrin(str(sums.ty.dtype), unit.intrinsic, pixels, taps)
        return (Wrapping(sums) + Wrapping(products)).value
    if unit.intrinsic:
        (pixels,), (taps,) = data, weights
        # x86 takes the second factor from memory, a word for all lanes, and NEON a lane of it: the
        # data, unless they must come first. A separate load of a word costs a fifth more.
        first, second = (taps, pixels) if unit.is_symmetric else (pixels, taps)
        if str(sums.ty.dtype).startswith("float32"):
            return add_dot(sums, first, second)
        return tirx.call_llvm_pure_intrin(sums.ty.dtype, unit.intrinsic, sums, first, second)
    if _widens(unit):
        for pixels, taps in zip(data, weights, strict=True):
            sums = sums + _maddwd(pixels, taps, unit)
        return sums
    kind, name = f"int16x{2 * unit.lanes}", _MADDUBSW[_bytes(unit)]
    pairs = zip(data, weights, strict=True)
    products = [tirx.call_llvm_pure_intrin(kind, name, *pair) for pair in pairs]
    return sums + _maddwd(reduce(add, products), _splat(1, "int16", 2 * unit.lanes), unit)


def _pairs(words: Sequence[Any], unit: DotUnit) -> Operand:
    """Bind pairs of bfloat16, unchanged or with both halves as float32."""
    (word,) = (T.Bind(each) for each in words)
    return tuple(map(T.Bind, halves(word, unit.lanes))) if unit.widens_floats else (word,)


def _widens(unit: DotUnit) -> bool:
    return unit.is_sequence and not unit.int16_sums


def _maddwd(first: Any, second: Any, unit: DotUnit) -> Any:
    return tirx.call_llvm_pure_intrin(f"int32x{unit.lanes}", _MADDWD[_bytes(unit)], first, second)


def _splat(value: int, dtype: str, lanes: int) -> Any:
    return T.broadcast(tirx.const(value, dtype), lanes)


def _bytes(unit: DotUnit) -> int:
    return unit.lanes * unit.group
