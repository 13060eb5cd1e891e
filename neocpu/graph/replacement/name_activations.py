"""Name activations that are written in pieces, or in a more general form."""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import reduced_axes
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op
from neocpu.ir.rewriting import Rewrite


def _leaky(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Write PRelu of one slope as LeakyRelu, which reads none."""
    slopes = constant_value(expr.args[1])
    if slopes is None or not slopes.size or not (slopes == slopes.flat[0]).all():
        return None
    return relax.op.nn.leakyrelu(expr.args[0], float(slopes.flat[0]))


def _softmax(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Find exponentials divided by their sum, with or without the maximum taken off before."""
    total = rewrite.sole_definition(expr.args[1])
    exponential = rewrite.definition(expr.args[0])
    if not is_op(total, "relax.sum") or not is_op(exponential, "relax.exp"):
        return None
    assert total is not None
    axis = _sole_axis(total)
    if axis is None or not total.args[0].same_as(expr.args[0]):
        return None
    data = exponential.args[0]
    shifted = rewrite.definition(data)
    if is_op(shifted, "relax.subtract"):
        largest = rewrite.definition(shifted.args[1])
        if is_op(largest, "relax.max") and _sole_axis(largest) == axis:
            if largest.args[0].same_as(shifted.args[0]):
                data = shifted.args[0]
    return relax.op.nn.softmax(data, axis)


def _sole_axis(call: Expr) -> int | None:
    """Return the axis that is reduced to one element, if it is one."""
    axes = reduced_axes(call)
    return axes[0] if axes is not None and len(axes) == 1 and call.attrs.keepdims else None


LEAKY_OF_ONE_SLOPE: Final = LocalRule(
    "leaky-of-one-slope",
    Kind.REPLACEMENT,
    "PRelu whose slopes are all equal becomes LeakyRelu.",
    operators=("relax.nn.prelu",),
    apply=_leaky,
)
NAME_SOFTMAX: Final = LocalRule(
    "name-softmax",
    Kind.REPLACEMENT,
    "Exponentials divided by their sum become softmax.",
    operators=("relax.divide",),
    apply=_softmax,
)
