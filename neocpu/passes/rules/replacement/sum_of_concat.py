"""Tensors that are stacked and then summed up over the new axis are added to each other.

So BiFPN fuses maps of one size: each is weighted, unsqueezed and concatenated with the others.
"""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.passes.rules.redundancy.axis_parts import extent_of, inputs_of
from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import Expr, Rewrite, reduced_axes, static_shape, summed


def _add_up(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Write a sum of a concatenation as sums, if each input has one element along the axis."""
    concat, shape = rewrite.sole_definition(expr.args[0]), static_shape(expr)
    found = None if concat is None else inputs_of(concat, rewrite.definition)
    if found is None or shape is None or reduced_axes(expr) != [found[0]]:
        return None
    axis, inputs = found
    if any(extent_of(each, axis) != 1 for each in inputs):
        return None
    return summed([rewrite.emit(relax.op.reshape(each, shape)) for each in inputs], rewrite)


SUM_OF_CONCAT: Final = LocalRule(
    "sum-of-concat",
    Kind.REPLACEMENT,
    "A Sum over the axis that tensors were stacked along adds them to each other.",
    operators=("relax.sum",),
    apply=_add_up,
)
