"""Changes to kernels for any size before they are scheduled, and before code is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.error import InternalError


def is_sized(func: tirx.PrimFunc) -> bool:
    """Return whether the first argument of a kernel is that of its extents."""
    return bool(func.params) and not all(
        isinstance(each, tirx.IntImm) for each in func.params[0].ty.shape
    )


def with_narrow_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel for any size whose indices have 32 bits, as those of one size get by TVM.

    TVM narrows indices whose bounds it knows, and then mixes them with those of 64 bits. Kernels
    that compute with integers of 64 bits are returned as they are.
    """
    if not is_sized(func) or str(func.params[0].ty.shape[0].ty.dtype) != "int64":
        return func
    try:
        narrow = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))
    except InternalError:
        return func
    return narrow["main"]


def with_truncated_quotients(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel whose quotients by extents, of no negative numbers, are truncated.

    TVM rounds them down by a correction of the sign, with which LLVM took minutes for a kernel that
    it otherwise compiles in a second. A kernel for one size is returned as it is.
    """
    if not is_sized(func):
        return func

    def truncated(make: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        return lambda each: each if isinstance(each.b, tirx.IntImm) else make(each.a, each.b)

    changes = (
        (tirx.FloorDiv, truncated(tirx.truncdiv)),
        (tirx.FloorMod, truncated(tirx.truncmod)),
    )
    body = func.body
    for change in changes:
        body = tvm_ffi.structural_map(body, change)
    return func.with_body(body)
