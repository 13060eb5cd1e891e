"""Constants of Relax as numpy arrays, and arrays as constants, without copies."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst

from neocpu.ir.expressions import Expr
from neocpu.runtime.aligned_memory import aligned_empty

Array: TypeAlias = npt.NDArray[Any]

#: TVM's kernels use aligned vector loads on constants (``kAllocAlignment``).
CONSTANT_ALIGNMENT = 64


def constant_value(expr: Expr) -> Array | None:
    """Return a tensor constant's value without copying it, or ``None`` for any other expression.

    The array shares the constant's memory: treat it as read-only.
    """
    if not isinstance(expr, GenericConst):
        return None
    try:
        array = np.from_dlpack(expr.value)
    except (BufferError, RuntimeError):  # bfloat16, float8: numpy's DLPack has no such type
        array = expr.value.numpy()
    array.flags.writeable = False
    return array


def number_of(expr: Expr) -> float | None:
    """Return the value of a constant of one element, or ``None`` for any other expression."""
    value = constant_value(expr)
    return float(value.item()) if value is not None and value.size == 1 else None


def make_const(array: npt.ArrayLike) -> GenericConst:
    """Return ``array`` as a Relax constant of the same shape and dtype (float64 stays float64).

    A contiguous, writeable array aligned to `CONSTANT_ALIGNMENT` bytes is wrapped, not copied, so
    the caller must not write to it afterwards (`aligned_empty` makes such arrays, for ``out=`` of
    numpy's operations); any other array is copied once.
    """
    array = np.asarray(array)
    aligned = array.ctypes.data % CONSTANT_ALIGNMENT == 0
    if not (aligned and array.flags.c_contiguous and array.flags.writeable):
        copy = aligned_empty(array.shape, array.dtype)
        copy[...] = array
        array = copy
    try:
        tensor = tvm_ffi.from_dlpack(array)
    except (BufferError, RuntimeError):
        tensor = tvm.runtime.tensor(array)
    return relax.const(tensor)


def with_rank(constant: Array, rank: int) -> Array:
    """Return a constant with axes added in front, so that it has so many axes."""
    return constant.reshape((1,) * (rank - constant.ndim) + constant.shape)


def vector_along(constant: Array, rank: int, axis: int) -> Array | None:
    """Return a constant that varies only along one axis of a tensor as ``(C,)``, or ``(1,)``.

    None if it varies along other axes, or has more axes than the tensor.
    """
    if constant.ndim > rank:
        return None
    if constant.size != 1 and with_rank(constant, rank).shape[axis] != constant.size:
        return None
    return constant.reshape(constant.size)
