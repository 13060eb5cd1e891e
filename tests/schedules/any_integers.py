"""Integer kernels whose instructions are replaced by plain arithmetic, for hosts without them."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from neocpu.schedules.tir.llvm_text import Wrapping
from neocpu.schedules.vocabulary.target_parsing import missing_on_host


def in_any_integers(func, target):
    """Return a kernel whose instructions are plain arithmetic if this host lacks them."""
    if not missing_on_host(target):
        return func
    return func.with_body(tvm_ffi.structural_map(func.body, (Call, _spelt_out)))


def _spelt_out(one):
    if getattr(one.op, "name", "") != "tirx.call_llvm_pure_intrin" or len(one.args) < 3:
        return one
    if len(one.args) == 3:
        return _multiplied(one)
    _, sums, pixels, taps = one.args
    group = pixels.ty.dtype.lanes // sums.ty.dtype.lanes
    for k in range(group):
        lanes = range(k, group * sums.ty.dtype.lanes, group)
        factors = (tirx.Shuffle([each], list(lanes)) for each in (pixels, taps))
        a, b = (each.astype(sums.ty.dtype) for each in factors)
        # VPDPWSSD's are added up modulo 2^32.
        sums = sums + a * b if group > 2 else (Wrapping(sums) + Wrapping(a * b)).value
    return sums


def _multiplied(one):
    """Return VPMADDUBSW or VPMADDWD in generic arithmetic, the former without saturating."""
    _, first, second = one.args
    lanes, kind = one.ty.dtype.lanes, one.ty.dtype
    total = tirx.const(0, kind)
    for k in range(2):
        factors = (tirx.Shuffle([each], list(range(k, 2 * lanes, 2))) for each in (first, second))
        a, b = (each.astype(kind) for each in factors)
        total = a * b if k == 0 else total + a * b
    return total
