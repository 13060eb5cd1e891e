"""Constants of Relax as numpy arrays, without copies, and weights that are stored as integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.ir.expressions import Expr, is_op
from neocpu.runtime.aligned_memory import aligned_empty

Array: TypeAlias = npt.NDArray[Any]

#: TVM's kernels use aligned vector loads on constants (``kAllocAlignment``).
CONSTANT_ALIGNMENT = 64


def constant_value(expr: Expr) -> Array | None:
    """Return a constant's value as a read-only array; None for other expressions."""
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

    A contiguous, writeable array aligned to `CONSTANT_ALIGNMENT` bytes, as from `aligned_empty`, is
    wrapped, so that the caller must not write to it afterwards; any other is copied once.
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
    """Return a constant as ``(C,)`` if, broadcast to ``rank`` axes, it varies only along ``axis``.

    A single number is ``(1,)``. None if it varies along other axes.
    """
    if constant.ndim > rank:
        return None
    if constant.size != 1 and with_rank(constant, rank).shape[axis] != constant.size:
        return None
    return constant.reshape(constant.size)


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeights:
    """Weights stored as integers ``values``, which represent ``(values - zero) * scale``."""

    values: Array  # int8 or uint8
    scale: Array  # one number for all integers, or a vector along ``axis``
    zero: Array  # likewise
    axis: int

    @property
    def centred(self) -> NDArray[np.int16]:
        return self.values.astype(np.int16) - self._spread(self.zero).astype(np.int16)

    @property
    def real(self) -> NDArray[np.float32]:
        """The represented numbers, as a float32 dequantisation computes them."""
        found: NDArray[np.float32] = self.centred.astype(np.float32) * self._spread(self.scale)
        return found

    def _spread(self, vector: Array) -> Array:
        shape = [1] * self.values.ndim
        if vector.size > 1:
            shape[self.axis] = -1
        return vector.reshape(shape)


def stored_weights(expr: Expr, definitions: Mapping[Var, Expr]) -> StoredWeights | None:
    """Return the weights that ``expr``, or the value of the variable ``expr``, dequantises."""
    value: Any = definitions.get(expr, expr) if isinstance(expr, Var) else expr
    if not is_op(value, "relax.dequantize"):
        return None
    assert isinstance(value, Call)
    values, scale, zero = map(constant_value, value.args)
    if values is None or scale is None or zero is None:
        return None
    return StoredWeights(values, scale, zero, int(value.attrs.axis))


def weight_values(expr: Expr, definitions: Mapping[Var, Expr]) -> Array | None:
    """Return constant weights as real numbers, even if they are stored as integers; else None."""
    constant = constant_value(expr)
    if constant is not None:
        return constant
    stored = stored_weights(expr, definitions)
    return None if stored is None else stored.real
