"""Pooling with a window: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, four_of, is_op, pair_of
from neocpu.planning.choice import Choice
from neocpu.planning.operators.layout_op import Emitter, Function, Read, Shape4
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.planning.quantised.grids import Grid, either, means_of, stored_data
from neocpu.schedules.operators.pool import estimate, lower_pool
from neocpu.schedules.operators.pool_workload import PoolWorkload
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolOp(WorkloadOp):
    """A pooling with a window."""

    takes_halves: ClassVar[bool] = True
    workload: PoolWorkload
    grid: Grid | None = None

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> PoolOp | None:
        """Find ``max_pool2d`` and ``avg_pool2d``."""
        if not is_op(value, "relax.nn.max_pool2d", "relax.nn.avg_pool2d"):
            return None
        source, attrs = feature_map_shape(value.args[0]), value.attrs
        if source is None or str(attrs.layout) != "NCHW":
            return None
        batch, channels, height, width = source
        workload = PoolWorkload(
            kind="max" if is_op(value, "relax.nn.max_pool2d") else "avg",
            batch=batch,
            channels=channels,
            height=height,
            width=width,
            kernel=pair_of(attrs.pool_size),
            stride=pair_of(attrs.strides),
            padding=four_of(attrs.padding),
            dilation=pair_of(attrs.dilation),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
            dtype=dtype_of(value),
        )
        if workload.output_shape != shape:
            return None
        return cls(
            name=function.name("pool"),
            result=var,
            shape=shape,
            dtype=workload.dtype,
            reads=(Read(value.args[0], source, workload.dtype),),
            absorbed=frozenset(),
            workload=workload,
            grid=function.grid(value.args[0]),
        )

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """The model's type, and narrower types where those give the same result.

        Maxima of stored integers are stored integers of the same grid; means are not.
        """
        if self.workload.kind == "avg":
            return means_of(self.dtype, self.grid, self.in_halves)
        return either(self.dtype, self.grid is not None, self.in_halves)

    def estimate(self, form: Format, target: CpuTarget, threads: int) -> float:
        """Return the kernel's analytic seconds: a window takes longer than moving its bytes."""
        workload = replace(self.workload, dtype=form.dtype)
        return estimate(workload, form.layout, target, threads)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the pooling's kernel."""
        form = choice.out_format
        stored = stored_data(choice.in_format, self.grid) if self.workload.kind == "avg" else None
        workload = replace(self.workload, dtype=form.dtype, stored=stored)
        kernel = emitter.kernel(
            self.name,
            (workload, form),
            lambda: lower_pool(workload, form.layout, emitter.target),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
