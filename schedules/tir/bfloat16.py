"""bfloat16 in kernels: its bits, conversion to float32, and instructions that multiply it.

TVM computes bfloat16 in float32, rounds after each operation, and has no instruction for it, so
kernels see the bits. LLVM's type bfloat is confined to functions that are inserted as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import tvm_ffi
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME
from neocpu.schedules.tir.builder import llvm_definition
from neocpu.schedules.vocabulary.dot_unit import DotUnit

BITS: Final = "uint16"

_INFINITY: Final = 0x7F800000
_QUIET_NAN: Final = 0x7FC0
_DOT: Final = "neocpu_dot_bfloat16"
_ROUND: Final = "neocpu_round_bfloat16"


def bits_of(buffer: Any) -> Any:
    """Return a buffer of bfloat16 as one of `BITS`; other buffers unchanged."""
    if str(buffer.dtype) != NAME:
        return buffer
    return T.decl_buffer(buffer.shape, BITS, data=buffer.data, layout=None)


def widened(bits: Any) -> Any:
    """Return the float32 value of bits, for a scalar or a vector."""
    lanes = int(bits.ty.dtype.lanes)
    times = f"x{lanes}" if lanes > 1 else ""
    shift = T.broadcast(_const(16), lanes) if lanes > 1 else _const(16)
    wide = tirx.shift_left(bits.astype(f"uint32{times}"), shift)
    return tirx.reinterpret(f"float32{times}", wide)


def rounded(value: Any) -> Any:
    """Return the bits of a float32 rounded to bfloat16, half to even; NaN stays NaN."""
    bits = tirx.reinterpret("uint32", value)
    odd = tirx.bitwise_and(tirx.shift_right(bits, _const(16)), _const(1))
    nearest = tirx.shift_right(bits + _const(0x7FFF) + odd, _const(16))
    # A NaN with all bits set would become a zero. (TVM takes ``value == value`` for true.)
    number = tirx.bitwise_and(bits, _const(0x7FFFFFFF)) <= _const(_INFINITY)
    return tirx.Select(number, nearest, _const(_QUIET_NAN)).astype(BITS)


def exact(value: Any) -> Any:
    """Return the bits of a float32, or of a vector, that is known to be exact in bfloat16."""
    lanes = int(value.ty.dtype.lanes)
    times = f"x{lanes}" if lanes > 1 else ""
    shift = T.broadcast(_const(16), lanes) if lanes > 1 else _const(16)
    bits = tirx.reinterpret(f"uint32{times}", value)
    return tirx.shift_right(bits, shift).astype(f"{BITS}{times}")


def round_casts(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace casts between float32 and bfloat16 by `rounded` and `widened`: TVM (0.27) writes what
    is cast three times, slow to compile and, with names, not to vectorise; it casts names wrongly.
    """

    def replace(cast: Any) -> Any:
        kinds = str(cast.value.ty), str(cast.ty)
        if kinds == (NAME, "float32"):
            # A product becomes a shift here; estimates do not look into shifts.
            bits = tirx.reinterpret(BITS, cast.value).astype("uint32")
            return tirx.reinterpret("float32", bits * _const(1 << 16))
        if kinds != ("float32", NAME):
            return cast
        var = tirx.Var("t", "float32")
        return tirx.Let(var, cast.value, tirx.reinterpret(NAME, rounded(var)))

    body = tvm_ffi.structural_map(func.body, (tirx.Cast, replace))
    return func if body.same_as(func.body) else func.with_body(body)


def halves(pairs: Any, lanes: int) -> tuple[Any, Any]:
    """Return pairs of bfloat16 in 32-bit words as float32 vectors of first and second elements."""
    kind = f"float32x{lanes}"
    first = tirx.shift_left(pairs, T.broadcast(tirx.const(16, "int32"), lanes))
    mask = T.broadcast(tirx.const(-(1 << 16), "int32"), lanes)
    return tirx.reinterpret(kind, first), tirx.reinterpret(kind, tirx.bitwise_and(pairs, mask))


def dot_products(intrinsic: str, lanes: int) -> Any:
    """Return the frame that `add_dot` needs around it for an instruction."""
    sums, words, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    definition = f"""
declare {sums} @{intrinsic}({sums}, {pairs}, {pairs})
define {sums} @{_DOT}({sums} %sums, {words} %vector, {words} %spread) alwaysinline nounwind {{
  %a = bitcast {words} %vector to {pairs}
  %b = bitcast {words} %spread to {pairs}
  %result = call {sums} @{intrinsic}({sums} %sums, {pairs} %a, {pairs} %b)
  ret {sums} %result
}}
"""
    return llvm_definition(definition)


def add_dot(sums: Any, vector: Any, spread: Any) -> Any:
    """Return ``sums`` plus products of pairs of bfloat16 in words, all equal in ``spread``."""
    return tirx.call_extern(str(sums.ty.dtype), _DOT, sums, vector, spread)


def rounds_vectors(dtype: str, unit: DotUnit | None) -> bool:
    """Return whether a type's stored values are rounded by an instruction, which replaces eight."""
    return dtype == NAME and unit is not None and bool(unit.intrinsic)


def roundings(widths: Iterable[int]) -> Any:
    """Return the frame that `rounded_bits` needs around it for vectors of these widths."""
    definitions = (
        f"""
define <{width} x i16> @{_ROUND}_{width}(<{width} x float> %value) alwaysinline nounwind {{
  %rounded = fptrunc <{width} x float> %value to <{width} x bfloat>
  %bits = bitcast <{width} x bfloat> %rounded to <{width} x i16>
  ret <{width} x i16> %bits
}}
"""
        for width in sorted(set(widths) - {1})
    )
    return llvm_definition("".join(definitions))


def rounded_bits(value: Any, width: int) -> Any:
    """Return a vector of float32, or one number, rounded to bfloat16; NaN stays NaN. Denormal
    numbers may become zeros, as they do in instructions that multiply bfloat16.
    """
    if width == 1:
        return rounded(value)
    return tirx.call_extern(f"{BITS}x{width}", f"{_ROUND}_{width}", value)


def parts_of(value: Any, width: int, parts: int = 2) -> tuple[Any, ...]:
    """Return a float32 vector rounded to bfloat16 and, of two parts, its remainder rounded."""
    if parts == 1:
        return (rounded_bits(value, width),)
    upper = T.Bind(rounded_bits(value, width))
    return upper, rounded_bits(value - widened(upper), width)


def _const(value: int) -> Any:
    return tirx.const(value, "uint32")
