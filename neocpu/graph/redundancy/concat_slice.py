"""Take slices from the inputs of concatenations, and concatenate no slices of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tvm import relax

from neocpu.graph.redundancy.axis_parts import Part, extent_of, inputs_of, part_of, slice_of
from neocpu.graph.rule import TUPLE_ITEM, Kind, LocalRule
from neocpu.ir.expressions import Expr
from neocpu.ir.rewriting import Rewrite


def _of_inputs(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Take a part of a concatenation from the inputs that it lies in.

    ::

        concat([x, y, z])[len(x) : len(x) + len(y)]  ->  y
        split(concat([x, y]))[1]                     ->  y
    """
    part = part_of(expr, rewrite.definition)
    found = None if part is None else inputs_of(rewrite.definition(part.source), rewrite.definition)
    if part is None or found is None or found[0] != part.axis or part.first == part.end:
        return None
    axis, inputs = found
    ends = list(accumulate(extent_of(each, axis) for each in inputs))
    starts = [0, *ends[:-1]]
    within = [
        (each, start)
        for each, start, end in zip(inputs, starts, ends, strict=True)
        if start < part.end and part.first < end
    ]
    if part.first in starts and part.end in ends:
        whole = [each for each, _ in within]
        return whole[0] if len(whole) == 1 else relax.op.concat(whole, axis)
    if len(within) > 1 or isinstance(expr, relax.TupleGetItem):
        return None  # a split would remain for its other items
    ((each, start),) = within
    return slice_of(Part(each, axis, part.first - start, part.end - start))


@dataclass(slots=True, eq=False)
class _Run:
    """Neighbouring parts of one tensor: their union, and the concatenated inputs."""

    part: Part | None
    inputs: list[Expr]

    def takes(self, part: Part | None) -> bool:
        if part is None or self.part is None:
            return False
        return self.part.source.same_as(part.source) and self.part.end == part.first


def _of_source(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Make one part of neighbouring parts of one tensor, or all of it.

    ::

        a, b = split(x)
        concat([a, b, y])  ->  concat([x, y])

    The blocks of YOLOv8 concatenate both halves of a map with results computed from one of them.
    """
    found = inputs_of(expr, rewrite.definition)
    if found is None:
        return None
    axis, inputs = found
    runs: list[_Run] = []
    for each in inputs:
        part = part_of(rewrite.definition(each), rewrite.definition)
        part = part if part is not None and part.axis == axis else None
        if runs and runs[-1].takes(part):
            last = runs[-1].part
            assert part is not None
            assert last is not None
            runs[-1].part = Part(part.source, axis, last.first, part.end)
            runs[-1].inputs.append(each)
        else:
            runs.append(_Run(part, [each]))
    fields = [field for run in runs for field in _fields(run, rewrite)]
    if len(fields) == len(inputs):
        return None
    return fields[0] if len(fields) == 1 else relax.op.concat(fields, axis)


def _fields(run: _Run, rewrite: Rewrite) -> list[Expr]:
    """Return one part in place of a run, or its inputs if other readers keep these."""
    if run.part is None or len(run.inputs) == 1:
        return run.inputs
    part = slice_of(run.part)
    kept = any(rewrite.sole_definition(each) is None for each in run.inputs)
    if kept and not part.same_as(run.part.source):
        return run.inputs
    return [rewrite.emit(part)]


SLICE_OF_CONCAT: Final = LocalRule(
    "slice-of-concat",
    Kind.REDUNDANCY,
    "A Slice or Split of a Concat takes its part from the inputs of the Concat.",
    operators=("relax.strided_slice", TUPLE_ITEM),
    apply=_of_inputs,
)
CONCAT_OF_SLICES: Final = LocalRule(
    "concat-of-slices",
    Kind.REDUNDANCY,
    "Neighbouring parts of one tensor are one part, and are not concatenated.",
    operators=("relax.concat",),
    apply=_of_source,
)
