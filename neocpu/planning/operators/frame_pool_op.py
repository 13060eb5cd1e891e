"""Pooling of volumes along their depth: layout-oblivious."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr, dtype_of, is_op
from neocpu.ir.frame_calls import POOLING, pool_workload
from neocpu.planning.operators.layout_op import Function, Read, Shape4
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.frame_pool import FramePoolWorkload, lower_frame_pool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FramePoolOp(WorkloadOp):
    """A pooling of volumes along their depth."""

    lowering: ClassVar = staticmethod(lower_frame_pool)
    workload: FramePoolWorkload

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> FramePoolOp | None:
        """Find the poolings of `neocpu.ir.frame_calls`."""
        if not is_op(value, POOLING):
            return None
        workload, dtype = pool_workload(value), dtype_of(value)
        return cls(
            name=function.name("pool"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(value.args[0], workload.input_shape, dtype),),
            absorbed=frozenset(),
            workload=workload,
        )
