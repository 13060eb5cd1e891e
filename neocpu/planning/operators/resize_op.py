"""Resizing of height and width: layout-tolerant."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tvm.ir import Var

from neocpu.planning.choice import Choice, Cost
from neocpu.planning.grids import either
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import Expr, dtype_of, feature_map_shape, is_op
from neocpu.schedules.operators.resize import (
    COORDINATES,
    TAPS,
    ResizeWorkload,
    estimate,
    lower_resize,
)
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class ResizeOp(LayoutOp):
    """A resizing of height and width."""

    workload: ResizeWorkload
    is_on_grid: bool = False

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ResizeOp | None:
        """Find ``resize2d`` by nearest neighbours, linear and cubic."""
        if not is_op(value, "relax.image.resize2d"):
            return None
        source, attrs = feature_map_shape(value.args[0]), value.attrs
        method, coordinates = str(attrs.method), str(attrs.coordinate_transformation_mode)
        known = method in TAPS and coordinates in COORDINATES
        if method == "nearest_neighbor":
            known = (coordinates, str(attrs.rounding_method)) == ("asymmetric", "floor")
        if source is None or str(attrs.layout) != "NCHW" or not known:
            return None
        size, cubic = (shape[2], shape[3]), float(attrs.cubic_alpha)
        workload = ResizeWorkload(source, size, method, coordinates, cubic)
        dtype = dtype_of(value)
        reads = (Read(value.args[0], source, dtype),)
        name, on_grid = function.name("resize"), function.grid(var) is not None
        return cls(name, var, shape, dtype, reads, frozenset(), workload, on_grid)

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """Either, if the nearest pixels are on a grid."""
        return either(self.dtype, self.is_on_grid)

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
        """Return the kernel's own estimate: in NCHW its pixels are looked up one by one."""
        return costs.estimated(estimate(self.workload, form, costs.target, costs.threads))

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        """Return the size of its tables."""
        return sum(table.nbytes for table in self.workload.tables())

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the kernel, on its tables."""
        form, workload = choice.out_format, self.workload
        kernel = emitter.kernel(
            self.name, (workload, form), lambda: lower_resize(workload, form, emitter.target)
        )
        tables = [emitter.weight(table) for table in workload.tables()]
        return emitter.call(kernel, [*reads, *tables], form, self.shape)
