"""Concatenations of slices of channels, or one slice: layout-oblivious."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tvm import relax
from tvm.ir import Var

from neocpu.planning.choice import Choice
from neocpu.planning.grids import either
from neocpu.planning.memory_class import MemoryClass
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import (
    Expr,
    channel_slice,
    dtype_of,
    feature_map_shape,
    is_op,
    used_vars,
)
from neocpu.schedules.operators.concat import is_shifted
from neocpu.schedules.operators.gather import lower_gather
from neocpu.schedules.vocabulary.layout import DataLayout


def concatenated(function: Function, value: Expr) -> list[Var]:
    """Return the feature maps whose channels ``value`` concatenates; none if it is no such."""
    if not is_op(value, "relax.concat") or int(value.attrs.axis or 0) % 4 != 1:
        return []
    parts = value.args[0]
    if isinstance(parts, Var):
        parts = function.definition(parts)
    fields = list(parts.fields) if isinstance(parts, relax.Tuple) else []
    return fields if all(isinstance(field, Var) for field in fields) else []


@dataclass(frozen=True, slots=True, eq=False)
class GatherOp(LayoutOp):
    """A concatenation of slices of channels, or one slice.

    Attributes
    ----------
    slices : tuple of (int, int)
        Per read, the first channel it takes and the one after the last.
    """

    slices: tuple[tuple[int, int], ...]
    is_on_grid: bool = False

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return the slices of channels that only one concatenation of channels reads."""
        found: set[Var] = set()
        definitions = function.definitions()
        for var, value in definitions.items():
            if not is_op(value, "relax.concat") or int(value.attrs.axis or 0) % 4 != 1:
                continue
            allowed, fields = {var}, set(used_vars(value))
            parts = value.args[0]
            if isinstance(parts, Var):
                if function.readers(parts) != {var} or parts not in definitions:
                    continue
                allowed, fields = fields, set(used_vars(definitions[parts]))
            for part in fields:
                slices = definitions.get(part)
                if function.is_result(part) or not is_op(slices, "relax.strided_slice"):
                    continue
                if allowed >= function.readers(part) and channel_slice(slices) is not None:
                    found.add(part)
        return frozenset(found)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GatherOp | None:
        """Find slices, and concatenations of what is claimed, beside whole feature maps."""
        sliced = function.claimed_by(cls)
        parts = [var]
        if not is_op(value, "relax.strided_slice"):
            parts = concatenated(function, value)
            known = all(feature_map_shape(part) is not None for part in parts)
            if not known or not any(part in sliced for part in parts):
                return None
        reads: list[Read] = []
        slices: list[tuple[int, int]] = []
        for part in parts:
            made = function.definition(part)
            run = channel_slice(made) if part in sliced or part.same_as(var) else None
            source = part if run is None or made is None else made.args[0]
            source_shape = feature_map_shape(source)
            if source_shape is None or source.same_as(var):
                return None
            reads.append(Read(source, source_shape, dtype_of(source)))
            slices.append(run or (0, source_shape[1]))
        absorbed = frozenset(part for part in parts if part in sliced)
        name, dtype = function.name("gather"), dtype_of(value)
        on_grid = function.grid(var) is not None
        return cls(name, var, shape, dtype, tuple(reads), absorbed, tuple(slices), on_grid)

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        """Either, if all that it takes is on one grid."""
        return either(self.dtype, self.is_on_grid)

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        """Return whether lanes are shifted."""
        shifted = is_shifted(tuple(end - first for first, end in self.slices), layout.block)
        shifted = shifted or any(first % layout.block for first, _ in self.slices)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT

    def moved(self, in_registers: Container[Var]) -> list[Shape4]:
        """Return as much as it writes: it reads its slices alone."""
        return [self.shape]

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the kernel that copies the slices."""
        form, shapes = choice.out_format, tuple(read.shape for read in self.reads)
        kernel = emitter.kernel(
            self.name,
            ("gather", shapes, self.slices, form),
            lambda: lower_gather(shapes, self.slices, emitter.target, form),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
