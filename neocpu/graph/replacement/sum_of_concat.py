"""Add tensors to each other instead of stacking them and summing over the new axis.

::

    sum(stack([x, y, z], axis), axis)                 ->  x + y + z
    sum(concat([x[..., None], y[..., None]], -1), -1) ->  x + y

BiFPN fuses maps of one size in this way: each is weighted, unsqueezed and concatenated with the
others. The importer writes ONNX's Sum as a sum of a stack, too.
"""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import reduced_axes
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite, summed


def _add_up(expr: Call, rewrite: Rewrite) -> Expr | None:
    stack, shape = rewrite.sole_definition(expr.args[0]), static_shape(expr)
    if stack is None or shape is None:
        return None
    if is_op(stack, "relax.stack"):
        terms, rank = rewrite.definition(stack.args[0]), len(static_shape(stack) or ())
        if expr.attrs.keepdims or not isinstance(terms, relax.Tuple):
            return None
        over_stack = reduced_axes(expr) == [int(stack.attrs.axis or 0) % rank]
        return summed(terms.fields, rewrite) if over_stack else None
    found = inputs_of(stack, rewrite.definition)
    if found is None or reduced_axes(expr) != [found[0]]:
        return None
    axis, inputs = found
    if any(extent_of(each, axis) != 1 for each in inputs):
        return None
    return summed([rewrite.emit(relax.op.reshape(each, shape)) for each in inputs], rewrite)


SUM_OF_CONCAT: Final = LocalRule(
    "sum-of-concat",
    Kind.REPLACEMENT,
    "A Sum over the axis along which tensors are stacked adds them to each other.",
    operators=("relax.sum",),
    apply=_add_up,
)
