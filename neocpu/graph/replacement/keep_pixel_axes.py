"""Means and sums over all pixels keep the axes of these: what drops them is a reshape after them.

``x.mean((2, 3))`` then is one number for each channel of a map, which kernels compute in the layout
that the map has. So exporters write the ends of classifiers, and the gates of ECA.
"""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import reduced_axes
from neocpu.ir.expressions import Expr, feature_map_shape, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _keep(expr: Call, rewrite: Rewrite) -> Expr | None:
    shape = static_shape(expr)
    if expr.attrs.keepdims or shape is None or feature_map_shape(expr.args[0]) is None:
        return None
    if reduced_axes(expr) != [2, 3]:
        return None
    reduce = relax.op.mean if is_op(expr, "relax.mean") else relax.op.sum
    return relax.op.reshape(rewrite.emit(reduce(expr.args[0], [2, 3], keepdims=True)), shape)


KEEP_PIXEL_AXES: Final = LocalRule(
    "keep-pixel-axes",
    Kind.REPLACEMENT,
    "Means and sums over all pixels of a map keep its axes, and are reshaped after.",
    operators=("relax.mean", "relax.sum"),
    apply=_keep,
)
