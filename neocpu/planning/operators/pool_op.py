"""Pooling with a window: layout-tolerant."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from tvm.ir import Var

from neocpu.planning.choice import Choice, Cost
from neocpu.planning.grids import Grid, either, means_of, stored_data
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import Expr, dtype_of, feature_map_shape, four_of, is_op, pair_of
from neocpu.schedules.operators.pool import estimate, lower_pool
from neocpu.schedules.operators.pool_workload import PoolWorkload
from neocpu.schedules.vocabulary.format import Format


@dataclass(frozen=True, slots=True, eq=False)
class PoolOp(LayoutOp):
    """A pooling with a window."""

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
        workload = PoolWorkload(
            "max" if is_op(value, "relax.nn.max_pool2d") else "avg",
            *source,
            pair_of(attrs.pool_size),
            pair_of(attrs.strides),
            four_of(attrs.padding),
            pair_of(attrs.dilation),
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            dtype_of(value),
        )
        if workload.output_shape != shape:
            return None
        reads = (Read(value.args[0], source, workload.dtype),)
        name = function.name("pool")
        grid = function.grid(value.args[0])
        return cls(name, var, shape, workload.dtype, reads, frozenset(), workload, grid)

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """Either; maxima of integers are those of what they stand for, means are none of them."""
        if self.workload.kind == "avg":
            return means_of(self.dtype, self.grid)
        return either(self.dtype, self.grid is not None)

    def describe(self, choice: Choice) -> str:
        """Return the workload."""
        return str(self.workload)

    def cost(
        self,
        form: Format,
        costs: MemoryCosts,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Return the kernel's own estimate: a window is more work than its bytes."""
        workload = replace(self.workload, dtype=form.dtype)
        return costs.estimated(estimate(workload, form.layout, costs.target, costs.threads))

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
