"""Pooling with a window, along the depth of volumes, and over all pixels: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from tvm.ir import Var

from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    feature_map_shape,
    four_of,
    is_op,
    pair_of,
    reduced_axes,
)
from neocpu.ir.frame_calls import POOLING, pool_workload
from neocpu.planning.choice import Choice
from neocpu.planning.operators.layout_op import (
    Emitter,
    Function,
    LayoutOp,
    Read,
    Shape4,
    WorkloadOp,
    sole_reader,
)
from neocpu.planning.quantised.grids import Grid, either, means_of, stored_data
from neocpu.schedules.operators.frame_pool import FramePoolWorkload, lower_frame_pool
from neocpu.schedules.operators.pool import estimate, lower_global_pool, lower_pool
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
            workload=workload,
            grid=function.grid(value.args[0]),
        )

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """The model's type, and narrower types for maxima, which stay on the grid of integers."""
        if self.workload.kind == "avg":
            return means_of(self.dtype, self.grid, self.in_halves)
        return either(self.dtype, self.grid is not None, self.in_halves)

    def estimate(self, form: Format, target: CpuTarget, threads: int) -> float:
        """Return the kernel's analytic seconds: a window takes longer than moving its bytes."""
        workload = replace(self.workload, dtype=form.dtype)
        return estimate(workload, form.layout, target, threads)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        form = choice.out_format
        stored = stored_data(choice.in_format, self.grid) if self.workload.kind == "avg" else None
        workload = replace(self.workload, dtype=form.dtype, stored=stored)
        kernel = emitter.kernel(
            self.name,
            (workload, form),
            lambda key: lower_pool(key[0], form.layout, emitter.target),
        )
        return emitter.call(kernel, list(reads), form, self.shape)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FramePoolOp(WorkloadOp):
    """A pooling of volumes along their depth."""

    lowering: ClassVar = staticmethod(lower_frame_pool)
    workload: FramePoolWorkload

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> FramePoolOp | None:
        if not is_op(value, POOLING):
            return None
        workload, dtype = pool_workload(value), dtype_of(value)
        return cls(
            name=function.name("pool"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(value.args[0], workload.input_shape, dtype),),
            workload=workload,
        )


_KINDS: Final = {"relax.mean": "avg", "relax.nn.adaptive_avg_pool2d": "avg", "relax.sum": "sum"}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlobalPoolOp(LayoutOp):
    takes_halves: ClassVar[bool] = True
    kind: str = "avg"  # ``avg``, ``sum``, or ``squares`` for the sum of squares
    grid: Grid | None = None  # grid of the data, if it computes a mean

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        values = function.definitions().items()
        found = (_squares(function, value) for _, value in values if _kind(value) == "sum")
        return frozenset(var for var in found if var is not None)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GlobalPoolOp | None:
        kind, dtype = _kind(value), dtype_of(value)
        if kind is None:
            return None
        data, inner = value.args[0], frozenset[Var]()
        squares = _squares(function, value) if kind == "sum" else None
        if squares is not None and squares in function.claimed_by(cls):
            product: Any = function.definition(squares)
            kind, data, inner = "squares", product.args[0], frozenset((squares,))
        source = feature_map_shape(data)
        if source is None or shape != (*source[:2], 1, 1) or var in function.claimed_by(cls):
            return None
        return cls(
            name=function.name("global_pool"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(data, source, dtype),),
            absorbed=inner,
            kind=kind,
            grid=function.grid(data) if kind == "avg" else None,
        )

    def describe(self, choice: Choice) -> str:
        text = LayoutOp.describe(self, choice)
        return text if self.kind == "avg" else f"{self.kind} {text}"

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        return means_of(self.dtype, self.grid, self.in_halves and self.kind == "avg")

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        form, shape, kind = choice.out_format, self.reads[0].shape, self.kind
        stored = stored_data(choice.in_format, self.grid)
        kernel = emitter.kernel(
            self.name,
            (kind, shape, form, stored),
            lambda key: lower_global_pool(kind, key[1], form, emitter.target, stored),
        )
        return emitter.call(kernel, list(reads), form, self.shape)


def _kind(value: Expr) -> str | None:
    kind = next((kind for name, kind in _KINDS.items() if is_op(value, name)), None)
    if kind is None or is_op(value, "relax.nn.adaptive_avg_pool2d"):
        return kind
    return kind if value.attrs.keepdims and reduced_axes(value) == [2, 3] else None


def _squares(function: Function, total: Any) -> Var | None:
    var = total.args[0]
    value: Any = function.definition(var) if isinstance(var, Var) else None
    if not is_op(value, "relax.multiply", "relax.square"):
        return None
    same = all(arg.same_as(value.args[0]) for arg in value.args)
    known = isinstance(value.args[0], Var) and feature_map_shape(value.args[0]) is not None
    return var if same and known and sole_reader(function, var) is not None else None
