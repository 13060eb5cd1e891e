"""Keep the axes of pixels in means and sums over all of them, and reshape the result.

::

    mean(x, [2, 3])  ->  reshape(mean(x, [2, 3], keepdims=True), (n, c))

The mean is then one number for each channel of a feature map, which kernels compute in the map's
own layout. Exporters write the ends of classifiers, and the gates of ECA, without these axes.
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
    "Means and sums over all pixels of a map keep the axes of these, and a reshape drops them.",
    operators=("relax.mean", "relax.sum"),
    apply=_keep,
)
