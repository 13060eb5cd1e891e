"""Matrix products with constant weights: layout-dependent, with one schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Var

from neocpu.foundation.bfloat16 import NAME
from neocpu.planning.bfloat16_forms import rounded_weights
from neocpu.planning.operators.layout_op import Emitter
from neocpu.planning.precision import Precision
from neocpu.planning.stored_weights import StoredWeights
from neocpu.relax_utils import Array, Expr, dtype_of, is_op, static_shape
from neocpu.schedules.operators.dense import DenseWorkload, lower_dense, pack_weights
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics

FEW_ROWS: Final = 4
"""Rows up to which a layer takes as long as its weights take from memory."""


def dense_workload(value: Expr, weights: Array | None) -> DenseWorkload | None:
    """Return the workload of a float32 matrix product with constant ``weights``, else None."""
    if not is_op(value, "relax.matmul") or not isinstance(value.args[0], Var):
        return None
    rows = static_shape(value.args[0])
    if weights is None or weights.ndim != 2 or rows is None or len(rows) < 2:
        return None
    if dtype_of(value) != "float32" or weights.dtype != "float32":
        return None
    columns, depth = int(weights.shape[1]), int(weights.shape[0])
    return DenseWorkload(math.prod(rows[:-1]), columns, depth, Numerics.uniform(dtype_of(value)))


def with_stored_weights(
    workload: DenseWorkload, stored: StoredWeights
) -> tuple[DenseWorkload, Array, Array] | None:
    """Return a layer that reads integers as weights, these, and the scales of its columns.

    None where that does not pay, for many rows share what they make float32 again, or where they
    are no such integers.
    """
    centred, scale = stored.centred, stored.scale.reshape(-1)
    per_column = scale.size == 1 or (stored.axis == 1 and scale.size == workload.n)
    if workload.m > FEW_ROWS or not per_column or centred.min() < -128 or centred.max() > 127:
        return None
    numerics = replace(workload.numerics, weights="int8")
    scales = np.broadcast_to(scale, (workload.n,)).astype(np.float32)
    return replace(workload, numerics=numerics), centred.astype(np.int8), scales


@dataclass(frozen=True, slots=True, eq=False)
class DenseOp:
    """A matrix product with constant weights, and its epilogue.

    Attributes
    ----------
    result, data : Var
        ``data`` has shape ``(..., K)``; all but its last axis are rows.
    weights : array
        ``(K, N)``.
    operands : tuple of array or Var
        What the epilogue's steps read, in order: a ``(N,)`` vector or a tensor like the result.
    """

    name: str
    result: Var
    data: Var
    absorbed: frozenset[Var]
    workload: DenseWorkload
    weights: NDArray[np.generic]
    operands: tuple[Any, ...]

    def computing(self, precision: Precision) -> DenseOp:
        """Have few rows read weights of 16 bits, if that is asked for."""
        if precision is not Precision.BF16 or self.workload.m > FEW_ROWS:
            return self
        if self.workload.numerics != FLOAT32:
            return self
        numerics = replace(FLOAT32, weights=NAME)
        return replace(
            self,
            workload=replace(self.workload, numerics=numerics),
            weights=rounded_weights(self.weights),
        )

    def emit(self, emitter: Emitter) -> Var:
        """Emit its kernel's call, on packed weights; data and result are seen as matrices."""
        workload, target, threads = self.workload, emitter.target, emitter.threads
        kernel = emitter.kernel(self.name, workload, lambda: lower_dense(workload, target, threads))
        rows = (workload.m, workload.n)
        args = [emitter.plain(self.data, (workload.m, workload.k))]
        args.append(emitter.weight(pack_weights(self.weights, workload, target, threads)))
        for operand in self.operands:
            if isinstance(operand, Var):
                args.append(emitter.plain(operand, rows))
            else:
                args.append(emitter.weight(operand))
        shape = static_shape(self.result)
        assert shape is not None
        return emitter.call_rows(kernel, args, rows, shape, workload.numerics.output)
