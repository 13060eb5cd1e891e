"""Pooling of volumes along their depth: layout-oblivious."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.ir import Var

from neocpu.planning.choice import Choice
from neocpu.planning.operators.frame_calls import POOLING, pool_workload
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import Expr, dtype_of, is_op
from neocpu.schedules.operators.frame_pool import FramePoolWorkload, lower_frame_pool


@dataclass(frozen=True, slots=True, eq=False)
class FramePoolOp(LayoutOp):
    """A pooling along the depth."""

    workload: FramePoolWorkload

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> FramePoolOp | None:
        """Find the poolings of `neocpu.planning.operators.frame_calls`."""
        if not is_op(value, POOLING):
            return None
        workload, dtype = pool_workload(value), dtype_of(value)
        reads = (Read(value.args[0], workload.input_shape, dtype),)
        return cls(function.name("pool"), var, shape, dtype, reads, frozenset(), workload)

    def describe(self, choice: Choice) -> str:
        """Return the workload."""
        return str(self.workload)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the pooling's kernel."""
        form, workload = choice.out_format, self.workload
        kernel = emitter.kernel(
            self.name,
            (workload, form),
            lambda: lower_frame_pool(workload, form, emitter.target),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
