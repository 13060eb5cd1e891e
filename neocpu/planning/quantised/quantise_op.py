"""Rounding to a grid outside convolutions: in any layout, or from NCHW into NCHW4c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr, feature_map_shape
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_costs import MemoryClass, MemoryCosts
from neocpu.planning.operators.layout_op import (
    ALONE,
    Around,
    Emitter,
    Function,
    LayoutOp,
    Read,
    Shape4,
)
from neocpu.planning.quantised.grids import STORED, Grid, grid_of, quantised_by
from neocpu.schedules.operators.quantised.quantise import DESTINATION, SOURCE, lower_quantised_pack
from neocpu.schedules.vocabulary.layout import DataLayout, Format


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QuantiseOp(LayoutOp):
    """A quantisation and its inverse. The result is stored as integers or as float32."""

    stays_in_registers: ClassVar[bool] = True

    grid: Grid
    after: str  # operator that makes the numbers without rounding them

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> QuantiseOp | None:
        inner = quantised_by(value, function.definitions())
        grid = grid_of(value)
        if inner is None or grid is None or feature_map_shape(inner.args[0]) != shape:
            return None
        stored = value.args[0]
        if function.readers(stored) != {var} or function.is_result(stored):
            return None
        if not isinstance(inner.args[0], Var):
            return None
        return cls(
            name=function.name("quantise"),
            result=var,
            shape=shape,
            dtype="float32",
            reads=(Read(inner.args[0], shape, "float32"),),
            absorbed=frozenset({stored}),
            grid=grid,
            after=_maker(function, inner.args[0]),
        )

    def describe(self, choice: Choice) -> str:
        return f"{LayoutOp.describe(self, choice)}, after {self.after}"

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        return (("float32", "float32"), ("float32", STORED))

    @property
    def between(self) -> tuple[tuple[Format, Format], ...]:
        return ((SOURCE, DESTINATION),)

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        return MemoryClass.ELEMENTWISE

    def cost(self, form: Format, costs: MemoryCosts, around: Around = ALONE) -> Cost:
        if form.dtype == STORED:
            source = Format(form.layout, "float32")
            return costs.transform(self.shape, source, form)
        return LayoutOp.cost(self, form, costs, around)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the quantisation, and its inverse if float32 is stored.

        If the layout changes too, emit the kernel that does both.
        """
        source, form = choice.in_format, choice.out_format
        if source.layout != form.layout:
            scale, zero = self.grid.scale, self.grid.zero
            kernel = emitter.kernel(
                f"quantise_{source.layout}_to_{form.layout}",
                ("quantised_pack", self.shape, scale, zero),
                lambda key: lower_quantised_pack(key[1], scale, zero, emitter.target),
            )
            return emitter.call(kernel, list(reads), form, self.shape)
        stored = emitter.emit(self.grid.quantise(reads[0]))
        if choice.out_format.dtype == STORED:
            return stored
        return emitter.emit(self.grid.dequantise(stored))


def _maker(function: Function, var: Var) -> str:
    value = function.definition(var)
    if value is None:
        return "an input"
    name = str(getattr(getattr(value, "op", None), "name", "a part of a tuple"))
    return name.removeprefix("relax.").removeprefix("nn.")
