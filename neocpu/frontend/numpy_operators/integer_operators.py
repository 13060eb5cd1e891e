"""Powers, conversions and reductions of integers too, in numpy, for the reference.

numpy refuses negative exponents, converts numbers out of range as the machine does, and widens the
results of reductions. Here, these have the data's type: sums of integers wrap around as on the
machine, and other results are rounded towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_cast import cast_to

from neocpu.foundation.arrays import Array


class Pow(OpRun):  # type: ignore[misc]
    """Power in the base's type; for integers it wraps around and rounds towards zero."""

    def _run(self, base: Array, exponent: Array) -> tuple[Array]:
        if not all(np.issubdtype(x.dtype, np.integer) for x in (base, exponent)):
            if base.dtype.kind == "f" and exponent.shape in ((), (1,)) and exponent == 2:
                return (np.square(base).reshape(base.shape or exponent.shape),)
            return (to_type(np.power(base, exponent), base.dtype),)
        below = exponent < 0
        # Unsigned numbers wrap around as signed ones do.
        exponents = np.where(below, 0, exponent).astype(np.uint64)
        power = np.power(base.astype(np.uint64), exponents).astype(base.dtype)
        sign = np.where(exponent % 2 != 0, -1, 1)
        reciprocal = np.where(base == 1, 1, np.where(base == -1, sign, 0)).astype(base.dtype)
        return (np.where(below, reciprocal, power),)


class Cast(OpRun):  # type: ignore[misc]
    """Conversion through int64, or int32 to 8 and 16 bits; NaN and numbers too large are 0."""

    def _run(
        self, x: Array, to: int = 0, saturate: int = 1, round_mode: str = "up"
    ) -> tuple[Array]:
        if np.dtype(tensor_dtype_to_np_dtype(to)).kind in "iu":
            return (to_type(x, tensor_dtype_to_np_dtype(to)),)
        return (cast_to(x, to, bool(saturate), round_mode),)


class CastLike(OpRun):  # type: ignore[misc]
    """Conversion to another tensor's type, like `Cast`."""

    def _run(self, x: Array, like: Array, saturate: int = 1, **attrs: Any) -> tuple[Array]:
        if like.dtype.kind in "iu":
            return (to_type(x, like.dtype),)
        return (cast_to(x, np_dtype_to_tensor_dtype(like.dtype), bool(saturate)),)


def to_type(x: Array, dtype: Any) -> Array:
    """Return a tensor converted as `Cast` does."""
    target = np.dtype(dtype)
    if x.dtype.kind == "f" and target.kind in "iu":
        bits = 32 if target.itemsize <= 2 else 64
        fits = np.abs(x) < 2.0 ** (bits - 1)
        x = np.where(fits, x, x.dtype.type(0)).astype(f"int{bits}")
    return np.asarray(x.astype(target))


def _same(values: Array) -> Array:
    return values


def _log_sum_exp(values: Array, axis: Any, keepdims: bool) -> Array:
    reduce: Any = np.logaddexp.reduce  # numpy's annotation allows one axis only
    return np.asarray(reduce(values, axis=axis, keepdims=keepdims)) if values.ndim else values


_Step: TypeAlias = Callable[..., Any]
_REDUCTIONS: Final[Mapping[str, tuple[bool, _Step, _Step, _Step]]] = {
    "ReduceSum": (False, _same, np.sum, _same),
    "ReduceProd": (False, _same, np.prod, _same),
    "ReduceL1": (False, np.abs, np.sum, _same),
    "ReduceSumSquare": (False, np.square, np.sum, _same),
    "ReduceL2": (True, np.square, np.sum, np.sqrt),
    "ReduceLogSum": (True, _same, np.sum, np.log),
    "ReduceMean": (True, _same, np.mean, _same),
    "ReduceLogSumExp": (True, _same, _log_sum_exp, _same),
}
"""Whether integers are computed in floating point, and the functions before, in and after it."""


class _Reduction(OpRun):  # type: ignore[misc]
    def _run(
        self,
        data: Array,
        axes: Array | None = None,
        keepdims: int | None = 1,
        noop_with_empty_axes: int = 0,
    ) -> tuple[Array]:
        is_real, before, fold, after = _REDUCTIONS[type(self).__name__]
        chosen = () if axes is None else tuple(np.asarray(axes).reshape(-1).tolist())
        values = data.astype(np.float64) if is_real and data.dtype.kind in "iu" else data
        values = before(values)
        if chosen or not noop_with_empty_axes:
            kept = keepdims is None or bool(keepdims)
            values = np.asarray(fold(values, axis=chosen or None, keepdims=kept))
        return (to_type(np.asarray(after(values)), data.dtype),)


REDUCTIONS: Final[tuple[type[OpRun], ...]] = tuple(
    type(name, (_Reduction,), {}) for name in _REDUCTIONS
)
