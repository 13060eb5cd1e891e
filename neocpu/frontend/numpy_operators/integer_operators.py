"""Integer powers and conversions to integers in numpy, for the reference.

numpy refuses negative exponents, and converts numbers out of range as the machine does.
"""

from __future__ import annotations

from typing import Any

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
    """Conversion; an integer made of NaN, or of a number too large to be converted, is 0.

    It converts through int64, and to 8 and 16 bits through int32.
    """

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
