"""Matrix products with constant weights: layout-dependent, with one schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Var

from neocpu.foundation.bfloat16 import NAME
from neocpu.foundation.dtypes import bytes_of
from neocpu.ir.constants import Array, StoredWeights
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.planning.operators.layout_op import Emitter
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import Grid
from neocpu.planning.quantised.quantised_steps import ConvForm
from neocpu.planning.weight_origin import Packing, Unpacked
from neocpu.schedules.convolutions.bfloat16_weights import rounded_weights
from neocpu.schedules.operators import dense
from neocpu.schedules.operators.dense import DenseWorkload, lower_dense, pack_weights
from neocpu.schedules.vocabulary.layout import KernelLayout
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.scheme import BlockedScheme
from neocpu.schedules.vocabulary.target import CpuTarget

FEW_ROWS: Final = 4  # with so many rows at most, a layer takes only as long as reading its weights


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
    """Return a layer that reads integer weights, the weights, and the scales of its columns.

    None for many rows, which share the cost of dequantised weights, or weights beyond int8.
    """
    centred, scale = stored.centred, stored.scale.reshape(-1)
    per_column = scale.size == 1 or (stored.axis == 1 and scale.size == workload.n)
    if workload.m > FEW_ROWS or not per_column or centred.min() < -128 or centred.max() > 127:
        return None
    numerics = replace(workload.numerics, weights="int8")
    scales = np.broadcast_to(scale, (workload.n,)).astype(np.float32)
    return replace(workload, numerics=numerics), centred.astype(np.int8), scales


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    var: Var  # rows as integers of type `STORED`, or as real numbers that round to these
    grid: Grid


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DenseOp:
    name: str
    result: Var
    data: Var  # ``(..., K)``; all but its last axis are rows
    absorbed: frozenset[Var]
    workload: DenseWorkload
    weights: NDArray[np.generic]  # ``(K, N)``
    operands: tuple[Any, ...]  # of the epilogue's steps: ``(N,)`` vectors, tensors like the result
    forms: tuple[ConvForm, ...] = ()  # see `integer_forms`
    readers: frozenset[Var] = frozenset()  # readers of the result; none if the function returns it
    rows: StoredRows | None = None  # data of `forms`; None if there are no forms

    @property
    def result_shape(self) -> tuple[int, ...]:
        shape = static_shape(self.result)
        assert shape is not None
        return shape

    @property
    def precision(self) -> Precision:
        return Precision.FP32

    def scheme(self, target: CpuTarget, threads: int) -> BlockedScheme | None:
        return None

    def estimate(self, target: CpuTarget, threads: int) -> float:
        return dense.estimate(self.workload, target, threads)

    def in_network(self, costs: NetworkCosts) -> NetworkTime:
        kind = "dense of few rows" if self.workload.m <= FEW_ROWS else "dense"
        return costs.estimated(
            lambda target: self.estimate(target, costs.threads),
            kind + self.workload.numerics.kind,
            streamed=self.workload.row_bytes,
        )

    def packed_bytes(self, target: CpuTarget, threads: int) -> int:
        shape = dense.packed_shape(self.workload, target, threads)
        return math.prod(shape) * bytes_of(self.workload.numerics.weights)

    def reading_bfloat16_weights(self) -> DenseOp:
        """Return a float32 layer reading 16-bit weights, which `emit` rounds; else the layer."""
        if self.workload.numerics != FLOAT32:
            return self
        numerics = replace(FLOAT32, weights=NAME)
        return replace(self, workload=replace(self.workload, numerics=numerics))

    def emit(self, emitter: Emitter) -> Var:
        workload, target, threads = self.workload, emitter.target, emitter.threads
        kernel = emitter.kernel(self.name, workload, lambda key: lower_dense(key, target, threads))
        rows = (workload.m, workload.n)
        args = [emitter.plain(self.data, (workload.m, workload.k))]
        is_rounded = workload.numerics.weights == NAME and self.weights.dtype == np.float32
        weights = rounded_weights(self.weights) if is_rounded else self.weights
        packed = Packing(
            source=weights, make=lambda: pack_weights(weights, workload, target, threads)
        )
        block = dense.block_width(workload, target, threads)
        origin = Unpacked(weights.T[:, :, None, None], KernelLayout(1, block))
        args.append(emitter.weight(packed, origin=origin))
        for operand in self.operands:
            is_var = isinstance(operand, Var)
            args.append(emitter.plain(operand, rows) if is_var else emitter.weight(operand))
        return emitter.call_rows(kernel, args, rows, self.result_shape, workload.numerics.output)
