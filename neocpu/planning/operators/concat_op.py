"""Concatenation of channels: layout-oblivious where the block divides every part."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_class import MemoryClass
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.gather_op import GatherOp, concatenated
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.planning.quantised.grids import either
from neocpu.schedules.operators.concat import is_shifted, lies_end_to_end, lower_concat
from neocpu.schedules.vocabulary.layout import DataLayout, Format


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConcatOp(LayoutOp):
    """A concatenation of channels."""

    takes_halves: ClassVar[bool] = True
    is_on_grid: bool = False

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ConcatOp | None:
        """Find concatenations of whole feature maps."""
        fields = concatenated(function, value)
        shapes = [feature_map_shape(field) for field in fields]
        sliced = function.claimed_by(GatherOp)
        if not fields or None in shapes or any(field in sliced for field in fields):
            return None
        dtype = dtype_of(value)
        reads = tuple(Read(v, s, dtype) for v, s in zip(fields, shapes, strict=True) if s)
        return cls(
            name=function.name("concat"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=reads,
            absorbed=frozenset(),
            is_on_grid=function.grid(var) is not None,
        )

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """The model's type, and stored integers if all parts are on one grid."""
        return either(self.dtype, self.is_on_grid, self.in_halves)

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        """Return the class of concatenations, with or without shifted lanes."""
        shifted = is_shifted(tuple(read.shape[1] for read in self.reads), layout.block)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT

    def parts(self, form: Format) -> tuple[Read, ...]:
        """Return all reads, if the result in ``form`` is one after the other."""
        end_to_end = lies_end_to_end([read.shape for read in self.reads], 1, form)
        return self.reads if end_to_end else ()

    def cost(
        self,
        form: Format,
        costs: MemoryCosts,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Return the cost of copying; parts that are written in their places cost nothing."""
        if parts := self.parts(form):
            shapes = [read.shape for read in parts if read in copied]
            if len(shapes) < len(parts):
                return costs.copies(shapes, form)
        # Zero-argument super() has no class to find where dataclasses make one with slots.
        return LayoutOp.cost(self, form, costs, in_registers)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the kernel that copies."""
        form, shapes = choice.out_format, tuple(read.shape for read in self.reads)
        kernel = emitter.kernel(
            self.name,
            ("concat", shapes, form),
            lambda: lower_concat(shapes, 1, emitter.target, form),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
