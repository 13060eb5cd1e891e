"""Concatenations of channels or of slices of them, and single slices: layout-oblivious.

A slice of whole blocks is read where it lies, and nothing is copied:
`neocpu.lowering.memory.plan_memory`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tvm import relax
from tvm.ir import Var

from neocpu.ir.expressions import Expr, channel_slice, dtype_of, feature_map_shape, is_op
from neocpu.ir.uses import used_vars
from neocpu.planning.choice import IN_PLACE, Choice, Cost
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
from neocpu.planning.quantised.grids import either
from neocpu.schedules.operators.concat import (
    is_shifted,
    lies_end_to_end,
    lower_concat,
    lower_gather,
    slice_offset,
)
from neocpu.schedules.vocabulary.layout import DataLayout, Format

#: Channels that are whole blocks on every CPU.
WHOLE_BLOCKS = 16


def concatenated(function: Function, value: Expr) -> list[Var]:
    """Return the feature maps whose channels ``value`` concatenates; none for other values."""
    if not is_op(value, "relax.concat") or int(value.attrs.axis or 0) % 4 != 1:
        return []
    parts = value.args[0]
    if isinstance(parts, Var):
        parts = function.definition(parts)
    fields = list(parts.fields) if isinstance(parts, relax.Tuple) else []
    return fields if all(isinstance(field, Var) for field in fields) else []


def _whole_blocks(parts: Iterable[Var], definitions: Mapping[Var, Expr]) -> bool:
    """Whether all parts of a concatenation are whole blocks, and at least one is no slice."""
    runs = []
    for part in parts:
        shape, made = feature_map_shape(part), definitions.get(part)
        if shape is None or shape[0] > 1:
            return False
        sliced = channel_slice(made) if is_op(made, "relax.strided_slice") else None
        runs.append((sliced is not None, *(sliced or (0, shape[1]))))
    aligned = all(first % WHOLE_BLOCKS == end % WHOLE_BLOCKS == 0 for _, first, end in runs)
    return aligned and not all(is_slice for is_slice, *_ in runs)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _CopyOp(LayoutOp):
    takes_halves: ClassVar[bool] = True
    is_on_grid: bool = False

    @property
    def dtypes(self) -> tuple[tuple[str, str], ...]:
        return either(self.dtype, self.is_on_grid, self.in_halves)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GatherOp(_CopyOp):
    slices: tuple[tuple[int, int], ...]  # first channel of each read, and the end

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return the slices of channels that only one concatenation of channels reads.

        Whole blocks are left out if other parts can be made in place: only slices are copied.
        """
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
            if _whole_blocks(fields, definitions):
                continue
            for part in fields:
                slices = definitions.get(part)
                if function.is_result(part) or not is_op(slices, "relax.strided_slice"):
                    continue
                if allowed >= function.readers(part) and channel_slice(slices) is not None:
                    found.add(part)
        return frozenset(found)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GatherOp | None:
        """Find slices, and concatenations of claimed slices and whole feature maps."""
        sliced = function.claimed_by(cls)
        if var in sliced:
            return None
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
        return cls(
            name=function.name("gather"),
            result=var,
            shape=shape,
            dtype=dtype_of(value),
            reads=tuple(reads),
            absorbed=frozenset(part for part in parts if part in sliced),
            slices=tuple(slices),
            is_on_grid=function.grid(var) is not None,
        )

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        shifted = is_shifted(tuple(end - first for first, end in self.slices), layout.block)
        shifted = shifted or any(first % layout.block for first, _ in self.slices)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT

    def is_view(self, form: Format) -> bool:
        if len(self.slices) > 1:
            return False
        return slice_offset(self.reads[0].shape, self.slices[0], form) is not None

    def cost(self, form: Format, costs: MemoryCosts, around: Around = ALONE) -> Cost:
        """Return the cost of copying; a slice of a kernel's result costs nothing."""
        if self.is_view(form) and self.reads[0] not in around.copied:
            return Cost(0.0, IN_PLACE)
        return LayoutOp.cost(self, form, costs, around)

    def moved(self, in_registers: Container[Var]) -> list[Shape4]:
        """Return the shape of the result: it reads as much as it writes."""
        return [self.shape]

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        form, shapes = choice.out_format, tuple(read.shape for read in self.reads)
        kernel = emitter.kernel(
            self.name,
            ("gather", shapes, self.slices, form),
            lambda key: lower_gather(key[1], self.slices, emitter.target, form),
        )
        return emitter.call(kernel, list(reads), form, self.shape)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConcatOp(_CopyOp):
    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ConcatOp | None:
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
            is_on_grid=function.grid(var) is not None,
        )

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        shifted = is_shifted(tuple(read.shape[1] for read in self.reads), layout.block)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT

    def parts(self, form: Format) -> tuple[Read, ...]:
        end_to_end = lies_end_to_end([read.shape for read in self.reads], 1, form)
        return self.reads if end_to_end else ()

    def cost(self, form: Format, costs: MemoryCosts, around: Around = ALONE) -> Cost:
        """Return the cost of copying; parts that are written in their places cost nothing."""
        if parts := self.parts(form):
            shapes = [read.shape for read in parts if read in around.copied]
            if len(shapes) < len(parts):
                return costs.copies(shapes, form)
        # Zero-argument super() has no class to find where dataclasses make one with slots.
        return LayoutOp.cost(self, form, costs, around)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        form, shapes = choice.out_format, tuple(read.shape for read in self.reads)
        kernel = emitter.kernel(
            self.name,
            ("concat", shapes, form),
            lambda key: lower_concat(key[1], 1, emitter.target, form),
        )
        return emitter.call(kernel, list(reads), form, self.shape)
