"""Normalise images as they are instead of between transposes.

::

    transpose_back(layer_norm(transpose(x), axes=[-1]))  ->  layer_norm(x, axes=[1])

ConvNeXt transposes feature maps in order to normalise the channels of each pixel.
"""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import permutation_of
from neocpu.ir.expressions import Expr, feature_map_shape, is_op
from neocpu.ir.rewriting import Rewrite


def _moved(expr: Expr, rewrite: Rewrite) -> Expr | None:
    normal = rewrite.sole_definition(expr.args[0])
    if normal is None or not is_op(normal, "relax.nn.layer_norm"):
        return None
    inner, axes = rewrite.definition(normal.args[0]), normal.attrs.axes
    if not is_op(inner, "relax.permute_dims") or len(axes) != 1:
        return None
    first, second = permutation_of(inner), permutation_of(expr)
    if feature_map_shape(expr) is None or [first[axis] for axis in second] != [0, 1, 2, 3]:
        return None
    along, epsilon = first[int(axes[0]) % 4], float(normal.attrs.epsilon)
    return relax.op.nn.layer_norm(inner.args[0], *normal.args[1:], [along], epsilon)


NORMALISE_CHANNELS: Final = LocalRule(
    "normalise-channels",
    Kind.REORDERING,
    "A layer normalisation between opposite transposes of a map is one of the map's channels.",
    operators=("relax.permute_dims",),
    apply=_moved,
)
