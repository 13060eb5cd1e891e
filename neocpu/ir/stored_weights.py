"""Weights that a quantised model stores as integers, and the real numbers they represent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Call, Var

from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, is_op


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeights:
    """Integers that represent ``(values - zero) * scale``.

    `values` are int8 or uint8. `scale` and `zero` are one number for all integers, or a vector
    along ``axis``.
    """

    values: Array
    scale: Array
    zero: Array
    axis: int

    @property
    def centred(self) -> NDArray[np.int16]:
        """The integers without their zero points."""
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
