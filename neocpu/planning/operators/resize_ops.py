"""Resizing of height and width, and shuffles of pixels: layout-tolerant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.constants import Array
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, is_op
from neocpu.ir.shuffle_calls import FoundShuffle, find_shuffle
from neocpu.planning.operators.layout_op import Function, Read, Shape4, WorkloadOp, read_within
from neocpu.planning.quantised.grids import either
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload, lower_shuffle
from neocpu.schedules.operators.pixel_shuffle import estimate as estimate_shuffle
from neocpu.schedules.operators.resize import (
    COORDINATES,
    TAPS,
    ResizeWorkload,
    estimate,
    lower_resize,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import for_any_size


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResizeOp(WorkloadOp):
    takes_halves: ClassVar[bool] = True
    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_resize)
    workload: ResizeWorkload
    is_on_grid: bool = False

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ResizeOp | None:
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
            workload=workload,
            is_on_grid=function.grid(var) is not None,
        )

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        return either(self.dtype, self.is_on_grid, self.in_halves and self.workload.taps == 1)

    def constants(self, form: Format, target: CpuTarget) -> Iterable[Array]:
        return () if for_any_size() else self.workload.tables()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ShuffleOp(WorkloadOp):
    estimator: ClassVar = staticmethod(estimate_shuffle)
    lowering: ClassVar = staticmethod(lower_shuffle)
    workload: ShuffleWorkload

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        claimed: set[Var] = set()
        for var in function.definitions():
            found = _whole(function, var)
            claimed.update(found.through if found else ())
        return frozenset(claimed)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ShuffleOp | None:
        found = _whole(function, var)
        if found is None or var in function.claimed_by(cls):
            return None
        return cls(
            name=function.name("shuffle"),
            result=var,
            shape=shape,
            dtype="float32",
            reads=(Read(found.source, found.workload.shape, "float32"),),
            absorbed=frozenset(found.through),
            workload=found.workload,
        )


def _whole(function: Function, var: Var) -> FoundShuffle | None:
    """Return the shuffle that makes ``var``, if nothing else reads the variables between."""
    definitions = function.definitions()
    found = find_shuffle(definitions[var], definitions)
    if found is None or found.by_channel:
        return None
    through = set(found.through)
    return found if read_within(function, through, {var}) == through else None
