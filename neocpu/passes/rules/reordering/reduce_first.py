"""Sums and means are taken before what is the same for all that they add up is multiplied.

``mean(x * gate)`` becomes ``mean(x) * gate``: the gate of a channel, after which pixels are pooled,
multiplies one number instead of all pixels.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax
from tvm.ir import Call

from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import Expr, Rewrite, dtype_of, is_op, reduced_axes, static_shape


def _reduce_first(expr: Call, rewrite: Rewrite) -> Expr | None:
    product: Any = rewrite.sole_definition(expr.args[0])
    shape = static_shape(expr.args[0])
    if not is_op(product, "relax.multiply") or shape is None or not expr.attrs.keepdims:
        return None
    axes = reduced_axes(expr)
    if axes is None or not dtype_of(expr).startswith("float"):
        return None
    for data, factor in (product.args, reversed(product.args)):
        own = static_shape(factor)
        if own is None or static_shape(data) != shape or factor.same_as(data):
            continue
        first = len(shape) - len(own)
        if all(own[axis - first] == 1 for axis in axes if axis >= first):
            reduced = rewrite.emit(Call(expr.op, [data], expr.attrs, expr.ty_args))
            return relax.op.multiply(reduced, factor)
    return None


REDUCE_FIRST: Final = LocalRule(
    "reduce-first",
    Kind.REORDERING,
    "Sums and means are taken before their terms are multiplied by what all of them share.",
    operators=("relax.mean", "relax.sum"),
    apply=_reduce_first,
)
