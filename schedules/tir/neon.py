"""Rewrites for NEON instructions that LLVM does not find.

A multiply-add can take one lane of a vector as a factor (``fmla v0.4s, v1.4s, v2.s[3]``), so that
four channels of a pixel, or four adjacent pixels, are one load. For broadcast scalars LLVM emits
one load each, or one for two.

A maximum of floats occupies a pipe for as long as a multiply-add; a maximum of integers or a copy
of a register takes half of that, and a load none. Clips therefore use maxima of integers, and sums
can start from a load.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, PrimType, TensorLoad, Var
from tvm.sym import Analyzer

from neocpu.schedules.tir.builder import llvm_definition

#: Lanes of float32.
LANES = 4

# The control register's bit that makes every NaN from an instruction 0x7fc00000.
_DEFAULT_NAN = 1 << 25

_LOAD_AGAIN = "neocpu_load_again"
_DEFINITION = f"""
define <{LANES} x float> @{_LOAD_AGAIN}(ptr %address) {{
  %register = call ptr asm "", "=r,0"(ptr %address) memory(none) nounwind
  %vector = load volatile <{LANES} x float>, ptr %register, align 4
  ret <{LANES} x float> %vector
}}
"""


def is_target_of(func: tirx.PrimFunc) -> bool:
    """Return whether a ``PrimFunc`` is bound to a target that has NEON."""
    target = (func.attrs or {}).get("target")
    return target is not None and bool(target.attrs.get("feature.is_aarch64", False))


def multiply_by_lane(body: Any) -> Any:
    """Replace scalars that are broadcast by lanes of whole vectors, in a flat statement.

    A float32 scalar, or a word of four bytes, with a known place in an aligned vector becomes that
    lane of it; LLVM then loads each vector once. The vector must lie in the buffer.
    """
    analyzer = Analyzer()

    def learn(bind: Any) -> None:
        if str(bind.var.ty) == "int32":
            analyzer.bind(bind.var, bind.value)

    def lane(broadcast: Any) -> Any:
        load = _load_of_word(broadcast.value)
        if load is None or int(broadcast.lanes) != LANES:
            return broadcast
        (index,) = load.indices
        first, elements = (index.base, 4) if isinstance(index, tirx.Ramp) else (index, 1)
        place = analyzer.modular_set(first)
        # Half a vector suffices for words.
        for lanes in (LANES, LANES // 2) if elements > 1 else (LANES,):
            whole = lanes * elements
            offset = place.base % whole
            if place.coeff % whole or offset % elements or not _is_whole(load.source, whole):
                continue
            vector = tirx.BufferLoad(load.source, [tirx.Ramp(first - offset, 1, whole)])
            if elements > 1:
                vector = tirx.reinterpret(f"int32x{lanes}", vector)
            vectors = [vector] * (LANES // lanes)  # as many lanes as needed
            return tirx.Shuffle(vectors, [offset // elements] * LANES)
        return broadcast

    tvm_ffi.structural_walk(body, (tirx.Bind, learn), order="pre")
    return tvm_ffi.structural_map(body, (tirx.Broadcast, lane))


def loads_again() -> Any:
    """Return the frame that `load_again` needs around it."""
    return llvm_definition(_DEFINITION)


def load_again(first: Any) -> Any:
    """Return the vector at ``first``, loaded at this place even if a register holds it. LLVM would
    merge several loads from one place into one, and copy registers.
    """
    return tirx.call_extern(f"float32x{LANES}", _LOAD_AGAIN, tirx.address_of(first))


def clip_as_integers(body: Any) -> Any:
    """Compute the maximum of a float's minimum and a constant as integers, in parallel tasks.

    Non-negative floats are ordered like their bits, and negative ones are negative integers. A NaN
    with a positive sign exceeds all of them; each task sets the CPU's mode in which all NaNs are
    positive.
    """

    def clip(extremum: Any) -> Any:
        bits = _bits(extremum.b)
        if not isinstance(extremum.a, tirx.Min) or bits is None or bits < 0:
            return extremum
        lanes = int(getattr(extremum.b, "lanes", 1))
        integers = f"int32x{lanes}" if lanes > 1 else "int32"
        least = tirx.const(bits, "int32")
        greater = tirx.Max(
            tirx.reinterpret(integers, extremum.a),
            tirx.Broadcast(least, lanes) if lanes > 1 else least,
        )
        return tirx.reinterpret(str(extremum.ty.dtype), greater)

    def task(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        inside = tvm_ffi.structural_map(loop.body, (tirx.Max, clip))
        if inside.same_as(loop.body):
            return loop
        return tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            loop.kind,
            _with_default_nan(inside),
            loop.thread_binding,
            loop.annotations,
            loop.step,
            loop.span,
        )

    return tvm_ffi.structural_map(body, (tirx.For, task))


def _with_default_nan(body: Any) -> Any:
    """Return a statement during which every NaN from an instruction is the default one."""
    before = Var("fpcr", PrimType("int64"))
    call = tirx.call_llvm_intrin
    during = tirx.bitwise_or(before, tirx.const(_DEFAULT_NAN, "int64"))
    return tirx.SeqStmt(
        [
            tirx.Bind(before, call("int64", "llvm.aarch64.get.fpcr")),
            tirx.Evaluate(call("void", "llvm.aarch64.set.fpcr", during)),
            body,
            tirx.Evaluate(call("void", "llvm.aarch64.set.fpcr", before)),
        ]
    )


def _bits(value: Any) -> int | None:
    value = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(value, tirx.FloatImm) or str(value.ty) != "float32":
        return None
    (bits,) = struct.unpack("<i", struct.pack("<f", float(value.value)))
    return int(bits)


def _load_of_word(value: Any) -> Any:
    load = value
    if isinstance(value, Call) and getattr(value.op, "name", "") == "tirx.reinterpret":
        load = value.args[0]
    if not isinstance(load, TensorLoad) or len(load.indices) != 1:
        return None
    kinds = str(load.ty.dtype), str(value.ty.dtype)
    known = (("float32", "float32"), ("int8x4", "int32"), ("uint8x4", "int32"))
    return load if kinds in known else None


def _is_whole(buffer: Any, elements: int) -> bool:
    extents = buffer.shape
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return False
    return math.prod(int(extent) for extent in extents) % elements == 0
