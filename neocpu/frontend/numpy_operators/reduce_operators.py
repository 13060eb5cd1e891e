"""Reductions of every element type, with results in the data's type, which numpy widens.

Sums of integers wrap around as on the machine; other results are rounded towards zero.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.integer_operators import to_type


class _Reduction(OpRun):  # type: ignore[misc]
    #: Whether integers are computed in floating point.
    real: ClassVar[bool] = False

    def _run(
        self,
        data: Array,
        axes: Array | None = None,
        keepdims: int | None = 1,
        noop_with_empty_axes: int = 0,
    ) -> tuple[Array]:
        chosen = () if axes is None else tuple(np.asarray(axes).reshape(-1).tolist())
        values = data.astype(np.float64) if self.real and data.dtype.kind in "iu" else data
        values = self.before(values)
        if chosen or not noop_with_empty_axes:
            values = self.fold(values, chosen or None, keepdims is None or bool(keepdims))
        return (to_type(np.asarray(self.after(values)), data.dtype),)

    def before(self, values: Array) -> Array:
        return values

    def fold(self, values: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        return np.asarray(np.sum(values, axis=axes, keepdims=keepdims))

    def after(self, values: Array) -> Array:
        return values


class ReduceSum(_Reduction):
    """The sum."""


class ReduceProd(_Reduction):
    """The product."""

    def fold(self, values: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        return np.asarray(np.prod(values, axis=axes, keepdims=keepdims))


class ReduceL1(_Reduction):
    """The sum of magnitudes."""

    def before(self, values: Array) -> Array:
        return np.abs(values)


class ReduceSumSquare(_Reduction):
    """The sum of squares."""

    def before(self, values: Array) -> Array:
        return np.square(values)


class ReduceL2(ReduceSumSquare):
    """The root of the sum of squares."""

    real = True

    def after(self, values: Array) -> Array:
        return np.sqrt(values)


class ReduceLogSum(_Reduction):
    """The logarithm of the sum."""

    real = True

    def after(self, values: Array) -> Array:
        return np.log(values)


class ReduceMean(_Reduction):
    """The mean."""

    real = True

    def fold(self, values: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        return np.asarray(np.mean(values, axis=axes, keepdims=keepdims))


class ReduceLogSumExp(_Reduction):
    """The logarithm of a sum of exponentials, also of a scalar."""

    real = True

    def fold(self, values: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
        reduce: Any = np.logaddexp.reduce  # numpy's annotation allows one axis only
        return np.asarray(reduce(values, axis=axes, keepdims=keepdims)) if values.ndim else values
