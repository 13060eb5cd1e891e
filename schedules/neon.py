"""What NEON does in one instruction and LLVM does not find: multiply-adds by one lane of a vector.

A multiply-add takes one lane of a vector as a factor (``fmla v0.4s, v1.4s, v2.s[3]``), so that four
pixels' channels, or four neighbouring pixels, are one load. Of broadcast scalars LLVM makes a load
each, or one of every two.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

#: Lanes of float32.
LANES = 4


def is_target_of(func: tirx.PrimFunc) -> bool:
    """Whether a ``PrimFunc`` is bound to a target that has NEON."""
    target = (func.attrs or {}).get("target")
    return target is not None and bool(target.attrs.get("feature.is_aarch64", False))


def multiply_by_lane(body: Any) -> Any:
    """Load whole vectors of what is broadcast from them, in a flat statement.

    A scalar of float32 whose place within an aligned vector is known becomes that lane of it;
    LLVM then loads each vector once. The vector must lie in the buffer.
    """
    analyzer = Analyzer()

    def learn(bind: Any) -> None:
        if str(bind.var.ty) == "int32":
            analyzer.bind(bind.var, bind.value)

    def lane(broadcast: Any) -> Any:
        load = broadcast.value
        if not isinstance(load, TensorLoad) or int(broadcast.lanes) != LANES:
            return broadcast
        if str(load.ty) != "float32" or len(load.indices) != 1 or not _is_whole(load.source):
            return broadcast
        (index,) = load.indices
        place = analyzer.modular_set(index)
        if place.coeff % LANES:
            return broadcast
        number = place.base % LANES
        vector = tirx.BufferLoad(load.source, [tirx.Ramp(index - number, 1, LANES)])
        return tirx.Shuffle([vector], [number] * LANES)

    tvm_ffi.structural_walk(body, (tirx.Bind, learn), order="pre")
    return tvm_ffi.structural_map(body, (tirx.Broadcast, lane))


def _is_whole(buffer: Any) -> bool:
    """Whether a buffer consists of whole vectors."""
    extents = buffer.shape
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return False
    return math.prod(int(extent) for extent in extents) % LANES == 0
