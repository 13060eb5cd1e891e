"""Resizing of height and width: layout-tolerant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.constants import Array
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, is_op
from neocpu.planning.operators.layout_op import Function, Read, Shape4
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.planning.quantised.grids import either
from neocpu.schedules.operators.resize import (
    COORDINATES,
    TAPS,
    ResizeWorkload,
    estimate,
    lower_resize,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResizeOp(WorkloadOp):
    """A resizing of height and width."""

    takes_halves: ClassVar[bool] = True
    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_resize)
    workload: ResizeWorkload
    is_on_grid: bool = False

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ResizeOp | None:
        """Find ``resize2d`` with nearest neighbours, linear and cubic."""
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
        return cls(
            name=function.name("resize"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(value.args[0], source, dtype),),
            absorbed=frozenset(),
            workload=workload,
            is_on_grid=function.grid(var) is not None,
        )

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """The model's type, and narrower types if it copies the nearest pixels."""
        return either(self.dtype, self.is_on_grid, self.in_halves and self.workload.taps == 1)

    def constants(self, form: Format, target: CpuTarget) -> Iterable[Array]:
        """Return the tables of the kernel."""
        return self.workload.tables()
